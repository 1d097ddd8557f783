"""Answers that models may give, drawn at random: whole, broken, unfinished, and cut into steps."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from hypothesis import strategies as st

from support.text import GLM_NANO, KIMI_NANO, WEATHER, a_text_model, a_tool
from tenantry_runtime.core import FinishReason, Tool
from tenantry_runtime.pool.messages import SequenceTokens
from tenantry_runtime.text import Control, OutputState, Part, Text, TextModel

MODELS = {"kimi": a_text_model(KIMI_NANO), "glm": a_text_model(GLM_NANO)}

TOOLS: list[Tool] = [
    WEATHER,
    a_tool(
        "edit", text={"type": "string"}, lines={"type": "array"}, why={"type": ["string", "null"]}
    ),
]
NAMES = ["get_weather", "edit", "no.such-tool"]
KEYS = ["city", "days", "text", "lines", "why", "x"]
STOP = ("STOP", "\u200d")

_WORDS = [
    # what only looks like control
    *("<think>", "</think>", "<tool_call>", "<|im_end|>", "<|tool_call_end|>", "functions.edit:0"),
    *("data: [DONE]", ": keep-alive", "\n\n"),
    # what has several bytes a character, what JSON escapes, what could become something else
    *("é", "你好", "\U0001f469\u200d\U0001f680", "\u2028", "\x00", "\ufffd", '"', "\\"),
    *("null", "nul", "STOP", "ST"),
]
texts = st.lists(st.sampled_from(_WORDS) | st.text(max_size=8), max_size=4).map("".join)
_arguments = texts | st.sampled_from(
    ['{"city": "Par\\u00eds", "days": 2}', '{"text": "a\\"b"}', "{}", "", '{"a": ', "[1]"]
)
_values = texts | st.sampled_from(["null", "[1, 2]", "[1, ", "5", " 5\n", "true"])


def _byte_tokens(model: TextModel) -> list[int]:
    single = {model.tokenizer.token_bytes(i): i for i in range(model.vocab_size)}
    return [single[bytes([byte])] for byte in range(256)]


_BYTES = {name: _byte_tokens(model) for name, model in MODELS.items()}


class Transcript(NamedTuple):
    """One answer, and the steps in which its tokens come."""

    model: TextModel
    initial: OutputState
    steps: list[list[int]]
    finish: FinishReason
    stop: tuple[str, ...]
    """Strings that end it."""

    def tokens(self, *, whole: bool) -> list[SequenceTokens]:
        """Return what a node says: all at once, or step by step."""
        steps = [[each for step in self.steps for each in step]] if whole else self.steps
        return [
            SequenceTokens(
                request_id="r",
                token_ids=tuple(step),
                finish=self.finish if number == len(steps) - 1 else None,
            )
            for number, step in enumerate(steps)
        ]


class Parts(NamedTuple):
    """One answer before it is tokens."""

    model: TextModel
    initial: OutputState
    parts: list[Part]


@st.composite
def answers(draw: st.DrawFn) -> Parts:
    """Draw an answer and lose some of its pieces."""
    model = MODELS[draw(st.sampled_from(sorted(MODELS)))]
    parts: list[Part] = []
    initial = draw(st.sampled_from([OutputState.REASONING, OutputState.CONTENT]))
    if initial is OutputState.REASONING:
        parts += [Text(draw(texts)), _control(model, "</think>")]
    parts.append(Text(draw(texts)))
    if draw(st.booleans()):
        parts += draw(_kimi_calls(model) if model.family == "kimi" else _glm_calls(model))
        parts.append(Text(draw(st.sampled_from(["", "\n", "and so on"]))))
    lost = draw(st.sets(st.integers(0, len(parts) - 1), max_size=2))
    return Parts(model, initial, [part for at, part in enumerate(parts) if at not in lost])


@st.composite
def transcripts(draw: st.DrawFn) -> Transcript:
    """Draw an answer; end it early or not; cut it anywhere."""
    model, initial, parts = draw(answers())
    token_ids = [each for part in parts for each in draw(_spelled(model, part))]
    finish = draw(st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]))
    if finish is FinishReason.STOP:
        token_ids.append(draw(st.sampled_from(sorted(model.stop_token_ids))))
    else:
        token_ids = token_ids[: draw(st.integers(0, len(token_ids)))]
    stop = draw(st.sampled_from([(), STOP]))
    return Transcript(model, initial, draw(_steps(token_ids)), finish, stop)


def spelled_out(answer: Parts) -> list[int]:
    """Write an answer with a token for each byte of its texts."""
    model = answer.model
    ids = [_bytewise(model, part) for part in answer.parts]
    return [each for part in ids for each in part]


@st.composite
def _steps(draw: st.DrawFn, token_ids: list[int]) -> list[list[int]]:
    """Cut tokens anywhere, also into steps of one token each; a step may be empty."""
    cuts = st.lists(st.integers(0, len(token_ids)), max_size=12).map(sorted)
    bounds = [0, *draw(cuts | st.just([*range(len(token_ids))])), len(token_ids)]
    return [token_ids[start:end] for start, end in itertools.pairwise(bounds)]


@st.composite
def _spelled(draw: st.DrawFn, model: TextModel, part: Part) -> list[int]:
    """Tokenize a text, or write it byte by byte, so that its characters lie across tokens."""
    return _bytewise(model, part) if draw(st.booleans()) else model.encode_part(part)


def _bytewise(model: TextModel, part: Part) -> list[int]:
    if isinstance(part, Text):
        return [_BYTES[model.family][byte] for byte in part.text.encode()]
    return model.encode_part(part)


def _control(model: TextModel, name: str) -> Control:
    return Control(model.tokenizer.controls.ids[name])


@st.composite
def _kimi_calls(draw: st.DrawFn, model: TextModel) -> list[Part]:
    parts: list[Part] = [_control(model, "<|tool_calls_section_begin|>")]
    for number in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(NAMES))
        heads = [
            f"functions.{name}:{number}",
            f"functions.{name}:0",
            f"{name}:1",
            str(number),
            name,
        ]
        parts += [
            _control(model, "<|tool_call_begin|>"),
            Text(draw(st.sampled_from(heads))),
            _control(model, "<|tool_call_argument_begin|>"),
            Text(draw(_arguments)),
            _control(model, "<|tool_call_end|>"),
        ]
    return [*parts, _control(model, "<|tool_calls_section_end|>")]


@st.composite
def _glm_calls(draw: st.DrawFn, model: TextModel) -> list[Part]:
    parts: list[Part] = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from([*NAMES, "\nedit\n"]))
        parts += [_control(model, "<tool_call>"), Text(name)]
        for key in draw(st.lists(st.sampled_from(KEYS), max_size=3)):
            parts += [_control(model, "<arg_key>"), Text(key), _control(model, "</arg_key>")]
            parts += [_control(model, "<arg_value>"), Text(draw(_values))]
            parts.append(_control(model, "</arg_value>"))
        parts.append(_control(model, "</tool_call>"))
    return parts
