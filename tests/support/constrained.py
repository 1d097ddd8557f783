"""Answers under grammars: what fits one, and engines that write them at random."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from llguidance import LLMatcher
from msgspec.structs import replace

from support.engine import a_submit, an_engine
from support.fake_decoder import FakeConfig, FakeDecoder
from support.text import GLM_NANO, KIMI_NANO, Answer, ids_of
from tenantry_runtime.core import FinishReason, Sampling, Tool
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.messages import Constraint, Submit
from tenantry_runtime.text import Constraints, OutputState, TextModel, Wanted, load_text
from tenantry_runtime.text.matching import Matching

CHECKPOINTS = {"kimi": KIMI_NANO, "glm": GLM_NANO}

WEATHER = Tool(
    name="weather",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"enum": ["C", "F", None]},
        },
        "required": ["city"],
    },
)
CLOCK = Tool(name="clock", parameters={"type": "object", "properties": {}})


@cache
def a_model(family: str) -> TextModel:
    return load_text(CHECKPOINTS[family])


@cache
def a_matching(family: str) -> Matching:
    """Take a family's whole vocabulary."""
    text = a_model(family)
    controls = text.tokenizer.controls.names
    return Matching.of(text.vocab_size, text.tokenizer.token_bytes, controls, text.stop_token_ids)


def grammar_of(family: str, wanted: Wanted) -> str:
    return Constraints(a_model(family)).grammar(wanted, "acme")


def begins(family: str, wanted: Wanted, scripted: str) -> bool:
    """Return whether an answer may begin so."""
    ids = ids_of(a_model(family), scripted)
    matcher = a_matching(family).compiled(grammar_of(family, wanted))
    return matcher.validate_tokens(ids) == len(ids)


def fits(family: str, wanted: Wanted, scripted: str) -> bool:
    """Return whether this is a whole answer: its turn may end there, with each of the stop tokens."""
    model = a_model(family)
    ids = ids_of(model, scripted)
    matcher = a_matching(family).compiled(grammar_of(family, wanted))
    return matcher.consume_tokens(ids) and model.stop_token_ids <= allowed(matcher)


def allowed(matcher: LLMatcher) -> set[int]:
    """Return the tokens that may come next."""
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    return set(bits.nonzero()[0].tolist())


def kimi_call(name: str, arguments: str, number: int = 0) -> str:
    return (
        f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{arguments}"
        "<|tool_call_end|>"
    )


def kimi_section(*calls: str) -> str:
    return f"<|tool_calls_section_begin|>{''.join(calls)}<|tool_calls_section_end|>"


def glm_call(name: str, **arguments: str) -> str:
    pairs = "".join(
        f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}{pairs}</tool_call>"


def weather_call(family: str, **arguments: Any) -> str:
    """Write a call of `weather` as the family's model does."""
    if family == "kimi":
        return kimi_section(kimi_call("weather", json.dumps(arguments)))
    raw = {k: v if isinstance(v, str) else json.dumps(v) for k, v in arguments.items()}
    return glm_call("weather", **raw)


def a_random_engine(family: str, **options: Any) -> EngineLoop:
    """Make an engine whose model knows nothing: its logits are noise over a family's vocabulary."""
    config = FakeConfig(vocab_size=a_model(family).vocab_size, context_tokens=4096)
    return an_engine(decoder=FakeDecoder(config), directory=str(CHECKPOINTS[family]), **options)


def a_constrained_submit(
    request_id: str,
    family: str,
    wanted: Wanted,
    *,
    max_tokens: int = 500,
    bias: dict[str, float] | None = None,
    seed: int = 1,
    **options: Any,
) -> Submit:
    """`bias`: on control strings."""
    ids = a_model(family).control_ids
    sampling = Sampling(
        seed=seed,
        temperature=1.0,
        logit_bias=tuple((ids[name], amount) for name, amount in (bias or {}).items()),
    )
    submit = a_submit(
        request_id,
        max_tokens=max_tokens,
        sampling=sampling,
        stop_token_ids=tuple(sorted(a_model(family).stop_token_ids)),
        **options,
    )
    return replace(submit, constraint=Constraint(lark=grammar_of(family, wanted)))


def read_answer(
    family: str,
    token_ids: Sequence[int],
    *,
    initial: OutputState = OutputState.CONTENT,
    tools: Sequence[Tool] = (),
) -> Answer:
    """Return what a client would have of these tokens."""
    machine = a_model(family).machine(initial, tools)
    events = [*machine.feed(token_ids), *machine.finish(FinishReason.STOP)]
    return Answer(events, machine.num_tool_calls)


def directory_of(family: str) -> Path:
    return CHECKPOINTS[family]
