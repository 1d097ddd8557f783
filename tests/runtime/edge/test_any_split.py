"""Whatever a model says, and however its tokens come in steps: a stream adds up to the whole answer."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, strategies as st

from support.chat_stream import read_stream
from support.examples import examples
from support.requests import a_target
from support.text import joined
from support.transcripts import TOOLS, Parts, Transcript, answers, spelled_out, transcripts
from tenantry_runtime.core import (
    Event,
    Finish,
    FinishReason,
    GenerateRequest,
    Sampling,
    ToolCallStart,
)
from tenantry_runtime.edge.answer import Answer
from tenantry_runtime.edge.dialects.dialect import Dialect, Printer
from tenantry_runtime.edge.dialects.openai_chat import OpenAIChat
from tenantry_runtime.edge.dialects.workers_ai import WorkersAI

DIALECTS: list[Dialect] = [WorkersAI(), OpenAIChat()]


def events_of(said: Transcript, *, whole: bool) -> list[Event]:
    machine = said.model.machine(said.initial, TOOLS)
    answer = Answer(machine, stop=said.stop, prompt_tokens=7)
    events: list[Event] = []
    for tokens in said.tokens(whole=whole):
        events += answer.take(tokens)
        if answer.reason is not None:
            break
    return [_numbered(event) for event in events]


def _numbered(event: Event) -> Event:
    """Give calls the ids of their place: those of GLM's calls are drawn at random."""
    if isinstance(event, ToolCallStart):
        return ToolCallStart(event.index, f"call_{event.index}", event.name)
    return event


def printed(dialect: Dialect, events: list[Event]) -> str:
    """Print a stream, with its usage."""
    printer = a_printer(dialect)
    return b"".join([printer.opening(), *map(printer.event, events)]).decode()


def completion(dialect: Dialect, events: list[Event]) -> Any:
    """Print a whole answer; take it out of its envelope, if it has one."""
    body = json.loads(a_printer(dialect).result([events]))
    return body.get("result", body)


def a_printer(dialect: Dialect) -> Printer:
    request = GenerateRequest(model="m", sampling=Sampling(seed=0), stream=True)
    return dialect.printer(request, a_target(), response_id="chatcmpl-1", created_s=0)


def usage_without_the_rest(usage: Any) -> Any:
    """Leave out how many tokens there were: with a stop string, a step ends later than the answer."""
    return usage["prompt_tokens"], usage["prompt_tokens_details"]


@examples(3)
@given(said=transcripts(), dialect=st.sampled_from(DIALECTS))
def test_a_stream_adds_up_to_the_whole_answer_whatever_the_steps(
    said: Transcript, dialect: Dialect
) -> None:
    whole = completion(dialect, events_of(said, whole=True))
    streamed = read_stream(printed(dialect, events_of(said, whole=False)))

    [choice] = whole["choices"]
    message = choice["message"]
    assert streamed.ended == "done"
    assert streamed.finish_reason == choice["finish_reason"]
    assert streamed.content == (message["content"] or "")
    assert (
        streamed.reasoning == message.get("reasoning", "") == message.get("reasoning_content", "")
    )
    assert [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in streamed.calls
    ] == message.get("tool_calls", [])
    if said.stop:
        assert usage_without_the_rest(streamed.usage) == usage_without_the_rest(whole["usage"])
    else:
        assert streamed.usage == whole["usage"]


@examples(3)
@given(answers())
def test_which_tokens_spell_a_text_changes_nothing(answer: Parts) -> None:
    model = answer.model
    usual = [each for part in answer.parts for each in model.encode_part(part)]
    read = []
    for token_ids in (usual, spelled_out(answer)):
        machine = model.machine(answer.initial, TOOLS)
        events = [*machine.feed(token_ids), *machine.finish(FinishReason.STOP)]
        read.append(([_numbered(event) for event in joined(events)], machine.num_tool_calls))
    assert read[0] == read[1]


@examples(3)
@given(transcripts())
def test_calls_are_claimed_only_by_an_answer_that_has_a_whole_one(said: Transcript) -> None:
    events = events_of(said, whole=False)
    finish = events[-1]
    assert isinstance(finish, Finish)
    [choice] = completion(DIALECTS[0], events)["choices"]
    arguments = [call["function"]["arguments"] for call in choice["message"].get("tool_calls", [])]
    if choice["finish_reason"] == "tool_calls":
        assert said.finish == "stop"
        assert any(_is_object(text) for text in arguments)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
