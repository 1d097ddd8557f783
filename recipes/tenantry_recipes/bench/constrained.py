"""Constrained decoding: what its masks cost, and whether what comes out is valid.

`python -m tenantry_recipes.bench.constrained masks TOKENIZER` times the masks of 8 streams over a
released vocabulary (a directory with Kimi's `tiktoken.model` and `tokenizer_config.json`), along an
answer with a call and an answer in JSON, and what steps take longer for them where they are found while a
device of its own runs the forward pass (`engine/device_runner.py`; the device here is a timer). `… answers --count N` lets each nano model write N calls and
N values at temperature 1, with thinking and without, and validates them with `jsonschema`.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

import tenantry_runtime
from tenantry_runtime.core import (
    ContentDelta,
    FinishReason,
    JsonFormat,
    Message,
    RenderOptions,
    Sampling,
    Tool,
    ToolCallArguments,
    ToolCallStart,
    ToolChoice,
)
from tenantry_runtime.engine.build import build_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.engine.constraints import MaskFinder
from tenantry_runtime.engine.guide import Guide
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.engine.masks import mask_words, num_mask_words
from tenantry_runtime.pool.messages import Constraint, Failed, Step, Submit
from tenantry_runtime.text import Constraints, OutputState, Prompt, TextModel, Wanted, load_text
from tenantry_runtime.text.controls import Controls
from tenantry_runtime.text.grammar import answer_grammar
from tenantry_runtime.text.kimi_tokenizer import KimiTokenizer
from tenantry_runtime.text.matching import Matching

NUM_STREAMS = 8
STEP_S = 2e-3
"""A short decode step; shares of one ten times as long are printed beside it."""
MAX_TOKENS = 600
"""The schemas bound every string: a model as small as these, asked for what it was not made for, ends few."""
BATCH = 16
NUM_ROUNDS = 7

CITY = Tool(
    name="get_weather",
    description="Get the weather of a city",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 30, "description": "Its name"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
    },
)
EVENT = Tool(
    name="add_event",
    description="Add an event to a calendar",
    parameters={
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 40},
            "hours": {"type": "number", "minimum": 0},
            "guests": {
                "type": "array",
                "items": {"type": "string", "maxLength": 20},
                "maxItems": 3,
            },
            "is_public": {"type": "boolean"},
        },
        "required": ["title", "hours", "is_public"],
    },
)
TOOLS = (CITY, EVENT)
SCHEMAS: tuple[dict[str, Any], ...] = (
    CITY.parameters,
    EVENT.parameters,
    {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 5},
    {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"id": {"type": "integer"}}}]},
)


class _Words:
    """A released model's vocabulary without its other files."""

    family = "kimi"

    def __init__(self, controls: Controls) -> None:
        self.control_ids = controls.ids
        self.stop_token_ids = frozenset({controls.ids["<|im_end|>"], controls.ids["[EOS]"]})


def time_masks(directory: Path) -> None:
    """Print how long the masks of a step take, beside its own time."""
    tokenizer = KimiTokenizer.load(directory)
    words = _Words(tokenizer.controls)
    started_s = time.perf_counter()
    matching = Matching.of(
        tokenizer.vocab_size, tokenizer.token_bytes, tokenizer.controls.names, words.stop_token_ids
    )
    print(f"vocabulary of {tokenizer.vocab_size}: {time.perf_counter() - started_s:.2f} s, once")
    call = (
        "Let me look at the weather of that city for you.<|tool_calls_section_begin|>"
        "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "San Francisco", "days": 7, "unit": "celsius"}'
        "<|tool_call_end|><|tool_calls_section_end|>"
    )
    value = (
        '{"title": "A talk about nothing much", "hours": 2.5, "guests": ["Ann", "Bob"], '
        '"is_public": true}'
    )
    cases = {
        "call": (Wanted(initial=OutputState.CONTENT, tools=TOOLS), call),
        "JSON": (
            Wanted(initial=OutputState.CONTENT, format=JsonFormat(schema=EVENT.parameters)),
            value,
        ),
    }
    for name, (wanted, answer) in cases.items():
        lark = answer_grammar(wanted, words, is_lenient=lambda _: False)  # type: ignore[arg-type]
        _time_answer(name, lark, matching, _ids(tokenizer, answer))


def _ids(tokenizer: KimiTokenizer, text: str) -> list[int]:
    ids = tokenizer.controls.ids
    pieces = tokenizer.controls._pattern.split(text)
    return [
        each
        for piece in pieces
        for each in ([ids[piece]] if piece in ids else tokenizer.encode(piece))
    ]


def _time_answer(name: str, lark: str, matching: Matching, token_ids: Sequence[int]) -> None:
    rounds = [_time_round(lark, matching, token_ids) for _ in range(NUM_ROUNDS)]
    # of each step the round in which others disturbed it least
    masks_s = np.min([masks for masks, _ in rounds], axis=0)
    advances_s = np.min([advances for _, advances in rounds], axis=0)
    whole_s = masks_s + advances_s
    for step_s in (STEP_S, 10 * STEP_S):
        share = _time_overlap(lark, matching, token_ids, step_s)
        print(f"{name}, steps of {1e3 * step_s:g} ms on a device: {share:.1%} longer with masks")
    print(
        f"{name}, {len(token_ids)} tokens: masks of {NUM_STREAMS} streams "
        f"{1e6 * masks_s.mean():.0f} us a step (median {1e6 * np.median(masks_s):.0f}, "
        f"most {1e6 * masks_s.max():.0f}), tokens taken in {1e6 * advances_s.mean():.0f} us: "
        f"{whole_s.mean() / STEP_S:.1%} of a step of {1e3 * STEP_S:g} ms, "
        f"{whole_s.mean() / (10 * STEP_S):.1%} of one of {1e4 * STEP_S:g} ms"
    )


def _time_round(
    lark: str, matching: Matching, token_ids: Sequence[int]
) -> tuple[list[float], list[float]]:
    guides = [_prepared(matching, lark) for _ in range(NUM_STREAMS)]
    finder = MaskFinder(matching.vocab_size)
    # its threads are started once
    finder.find(guides)
    masks_s, advances_s = [], []
    for token_id in token_ids:
        started_s = time.perf_counter()
        masks = finder.find(guides)
        found_s = time.perf_counter()
        for guide in guides:
            guide.advance(token_id)
        masks_s.append(found_s - started_s)
        advances_s.append(time.perf_counter() - found_s)
        assert masks is not None
        assert all(guide.problem is None for guide in guides), guides[0].problem
    return masks_s, advances_s


def _time_overlap(lark: str, matching: Matching, token_ids: Sequence[int], step_s: float) -> float:
    """Return by what part the median step is longer with masks than without, taken in turns."""
    finder = MaskFinder(matching.vocab_size)
    guides = [_prepared(matching, lark) for _ in range(NUM_STREAMS)]
    finder.find(guides)
    num_words = num_mask_words(matching.vocab_size)
    late = np.empty((NUM_STREAMS, num_words), np.int64)
    with_s: list[float] = []
    without_s: list[float] = []
    with ThreadPoolExecutor(1) as device:
        for token_id in token_ids:
            for times, is_masked in ((without_s, False), (with_s, True)):
                started_s = time.perf_counter()
                forward = device.submit(time.sleep, step_s)
                masks = finder.find(guides) if is_masked else None
                words = mask_words(masks, NUM_STREAMS, num_words) if is_masked else late
                forward.result()
                if is_masked:
                    # to the device, whose sampling goes on from there
                    np.copyto(late, words)
                    for guide in guides:
                        guide.advance(token_id)
                times.append(time.perf_counter() - started_s)
    return float(np.median(with_s) / np.median(without_s) - 1)


def _prepared(matching: Matching, lark: str) -> Guide:
    """Do what is done beside the step loop."""
    guide = Guide(matching.compiled(lark), matching.vocab_size)
    guide.matcher.compute_bitmask()
    return guide


def check_answers(names: Sequence[str], count: int) -> None:
    """Print how each model's answers ended, and how many are not valid."""
    checkpoints = Path(tenantry_runtime.__file__).parent / "checkpoints"
    for name in names:
        directory = checkpoints / name
        text = load_text(directory)
        source = ModelSource(id=name, directory=str(directory), vocab_limit=text.vocab_size)
        loop = build_loop(NodeConfig(models=(source,), max_batch=BATCH))
        try:
            for what in ("calls", "JSON"):
                print(f"{name}, {count} {what}: {dict(_outcomes(loop, text, name, what, count))}")
        finally:
            loop.close()


def _outcomes(loop: EngineLoop, text: TextModel, model: str, what: str, count: int) -> Counter[str]:
    constraints = Constraints(text)
    outcomes: Counter[str] = Counter()
    for first in range(0, count, BATCH):
        asked = {
            f"{number}": _asked(number, text, what)
            for number in range(first, min(first + BATCH, count))
        }
        for name, (prompt, wanted) in asked.items():
            loop.submit(
                Submit(
                    request_id=name,
                    tenant="bench",
                    model=model,
                    token_ids=text.encode(prompt),
                    sampling=Sampling(seed=int(name), temperature=1.0),
                    stop_token_ids=tuple(text.stop_token_ids),
                    max_tokens=MAX_TOKENS,
                    constraint=Constraint(lark=constraints.grammar(wanted, "bench")),
                )
            )
        for name, token_ids, finish in _said(loop):
            outcomes[_judged(text, asked[name][1], token_ids, finish)] += 1
    return outcomes


def _asked(number: int, text: TextModel, what: str) -> tuple[Prompt, Wanted]:
    rng = random.Random(number)
    options = RenderOptions(thinking=bool(number % 2))
    city = rng.choice(["Paris", "Bern", "Lima", "Oslo", "Cairo"])
    messages = [
        Message(role="user", content=f"What is the weather in {city} for {rng.randint(1, 9)} days?")
    ]
    tools = TOOLS if what == "calls" else ()
    prompt = text.render(messages, tools, options)
    if what == "calls":
        choice = ToolChoice(mode="required", name=rng.choice([None, "get_weather", "add_event"]))
        return prompt, Wanted(initial=prompt.initial, tools=tools, choice=choice)
    schema = rng.choice(SCHEMAS)
    return prompt, Wanted(initial=prompt.initial, format=JsonFormat(schema=schema))


def _said(loop: EngineLoop) -> Iterator[tuple[str, list[int], FinishReason | None]]:
    said: dict[str, list[int]] = {}
    while not loop.is_idle:
        for message in loop.turn():
            if isinstance(message, Failed):
                yield message.request_id, [], None
            elif isinstance(message, Step):
                for tokens in message.sequences:
                    said.setdefault(tokens.request_id, []).extend(tokens.token_ids)
                    if tokens.finish is not None:
                        yield tokens.request_id, said[tokens.request_id], tokens.finish


def _judged(
    text: TextModel, wanted: Wanted, token_ids: Sequence[int], finish: FinishReason | None
) -> str:
    if finish is not FinishReason.STOP:
        return "length" if finish is FinishReason.LENGTH else "failed"
    machine = text.machine(wanted.initial, wanted.tools)
    events = [*machine.feed(token_ids), *machine.finish(finish)]
    try:
        if isinstance(wanted.format, JsonFormat):
            content = "".join(e.text for e in events if isinstance(e, ContentDelta))
            jsonschema.validate(json.loads(content), wanted.format.schema or True)
            return "valid"
        starts = [e for e in events if isinstance(e, ToolCallStart)]
        schemas = {tool.name: tool.parameters for _, tool in wanted.callable_tools}
        calls = [e for e in events if isinstance(e, ToolCallArguments)]
        for start in starts:
            arguments = "".join(call.text for call in calls if call.index == start.index)
            jsonschema.validate(json.loads(arguments), schemas[start.name])
        return "valid" if starts and machine.num_tool_calls == len(starts) else "invalid"
    except (ValueError, KeyError, jsonschema.ValidationError):
        return "invalid"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    masks = commands.add_parser("masks")
    masks.add_argument("tokenizer", type=Path)
    answers = commands.add_parser("answers")
    answers.add_argument("--count", type=int, default=100)
    answers.add_argument("--model", action="append")
    arguments = parser.parse_args()
    if arguments.command == "masks":
        time_masks(arguments.tokenizer)
    else:
        check_answers(arguments.model or ["kimi-k2.6-nano", "glm-5.2-nano"], arguments.count)


if __name__ == "__main__":
    main()
