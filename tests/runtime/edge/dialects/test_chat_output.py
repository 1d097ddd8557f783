"""What an answer looks like to clients of OpenAI's chat API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.requests import a_target, parsed
from tenantry_runtime.core import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)
from tenantry_runtime.edge.dialects.chat_output import ChatPrinter
from tenantry_runtime.edge.dialects.workers_ai import WorkersAI
from tenantry_runtime.errors import GenerationFailed

USAGE = Usage(prompt_tokens=10, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
PRINTED_USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}

CALLS: list[Event] = [
    ToolCallStart(0, "functions.f:0", "f"),
    ToolCallArguments(0, '{"a"'),
    ToolCallArguments(0, ": 1}"),
    ToolCallStart(1, "functions.g:1", "g"),
    ToolCallArguments(1, "{}"),
]


def a_printer(**fields: Any) -> ChatPrinter:
    printer = WorkersAI().printer(
        parsed(**fields), a_target(), response_id="chatcmpl-1", created_s=1_700_000_000
    )
    assert isinstance(printer, ChatPrinter)
    return printer


def finish(reason: FinishReason = FinishReason.STOP) -> Finish:
    return Finish(reason=reason, usage=USAGE)


def records(printed: bytes) -> list[Any]:
    """Read a stream's events; `[DONE]` stays text."""
    *events, rest = printed.decode().split("\n\n")
    assert rest == "", "an event ends with an empty line"
    bodies = [event.removeprefix("data: ") for event in events]
    return [body if body == "[DONE]" else json.loads(body) for body in bodies]


def delta(event: Event) -> Any:
    [record] = records(a_printer().event(event))
    [choice] = record["choices"]
    return choice["delta"]


def result(*events: Event) -> Any:
    return json.loads(a_printer().result([[*events, finish()]]))["result"]


def message(*events: Event) -> Any:
    return result(*events)["choices"][0]["message"]


def test_a_whole_answer_is_a_chat_completion_in_the_envelope() -> None:
    envelope = json.loads(a_printer().result([[ContentDelta("4"), ContentDelta("2"), finish()]]))

    assert envelope == {
        "result": {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "@cf/moonshotai/kimi-k2.6",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "42", "refusal": None},
                    "finish_reason": "stop",
                    "logprobs": None,
                }
            ],
            "usage": PRINTED_USAGE,
            "system_fingerprint": None,
        },
        "success": True,
        "errors": [],
        "messages": [],
    }


def test_reasoning_has_both_names() -> None:
    assert message(ReasoningDelta("h"), ReasoningDelta("m"), ContentDelta("a")) == {
        "role": "assistant",
        "content": "a",
        "refusal": None,
        "reasoning": "hm",
        "reasoning_content": "hm",
    }


def test_calls_have_whole_arguments_and_no_content_beside_them() -> None:
    assert message(*CALLS) == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [
            {
                "id": "functions.f:0",
                "type": "function",
                "function": {"name": "f", "arguments": '{"a": 1}'},
            },
            {
                "id": "functions.g:1",
                "type": "function",
                "function": {"name": "g", "arguments": "{}"},
            },
        ],
    }


def test_content_before_calls_is_kept() -> None:
    assert message(ContentDelta("let me look"), *CALLS)["content"] == "let me look"


def test_content_without_calls_is_never_null() -> None:
    assert message()["content"] == ""
    assert message(ReasoningDelta("cut off"))["content"] == ""


def test_a_stream_opens_with_the_role() -> None:
    assert records(a_printer().opening()) == [
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": "@cf/moonshotai/kimi-k2.6",
            "choices": [
                {
                    "index": 0,
                    "delta": {"role": "assistant", "content": ""},
                    "logprobs": None,
                    "finish_reason": None,
                }
            ],
        }
    ]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (ContentDelta("a\n\nb"), {"content": "a\n\nb"}),
        (ReasoningDelta("hm"), {"reasoning": "hm", "reasoning_content": "hm"}),
        (
            ToolCallStart(1, "functions.f:1", "f"),
            {
                "tool_calls": [
                    {
                        "index": 1,
                        "id": "functions.f:1",
                        "type": "function",
                        "function": {"name": "f", "arguments": ""},
                    }
                ]
            },
        ),
        (
            ToolCallArguments(1, '{"a"'),
            {"tool_calls": [{"index": 1, "function": {"arguments": '{"a"'}}]},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_delta_carries_only_what_is_new(event: Event, expected: Any) -> None:
    assert delta(event) == expected


def test_a_stream_ends_with_reason_usage_and_done() -> None:
    last, usage, done = records(a_printer().event(finish(FinishReason.TOOL_CALLS)))

    assert last["choices"] == [
        {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "tool_calls"}
    ]
    assert "usage" not in last
    assert (usage["choices"], usage["usage"]) == ([], PRINTED_USAGE)
    assert done == "[DONE]"


def test_usage_is_left_out_on_request() -> None:
    printer = a_printer(stream=True, stream_options={"include_usage": False})

    last, done = records(printer.event(finish()))

    assert "usage" not in last
    assert done == "[DONE]"


def test_a_broken_stream_ends_with_an_error_in_both_forms_and_no_done() -> None:
    message = "generation failed: out of luck"

    assert records(a_printer().broken(GenerationFailed("out of luck"))) == [
        {
            "error": {
                "message": message,
                "type": "server_error",
                "code": "internal_error",
                "param": None,
            },
            "success": False,
            "errors": [{"code": 3043, "message": message}],
            "messages": [],
            "result": None,
        }
    ]


def test_a_stream_adds_up_to_the_whole_answer() -> None:
    events: list[Event] = [ReasoningDelta("h"), ReasoningDelta("m"), ContentDelta("a"), *CALLS]

    joined: dict[str, Any] = {"content": "", "reasoning": "", "calls": {}}
    for event in events:
        for name, value in delta(event).items():
            match name:
                case "tool_calls":
                    [call] = value
                    function = call["function"]
                    known = joined["calls"].setdefault(call["index"], {"arguments": ""})
                    known["arguments"] += function["arguments"]
                    known.update(name=function["name"] if "name" in function else known["name"])
                case "reasoning_content":
                    pass
                case _:
                    joined[name] += value

    whole = message(*events)
    assert joined["content"] == whole["content"]
    assert joined["reasoning"] == whole["reasoning"]
    assert list(joined["calls"].values()) == [call["function"] for call in whole["tool_calls"]]
