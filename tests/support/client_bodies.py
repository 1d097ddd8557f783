"""What real clients send.

`client_bodies.json` has what the conformance suite's programs sent (`tests/conformance/record.py`);
here is what clients may send beside that, as their own sources build it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

FILE = Path(__file__).with_name("client_bodies.json")

MODEL = "@cf/moonshotai/kimi-k2.6"

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
DRAFT_07 = {"$schema": "http://json-schema.org/draft-07/schema#", **SCHEMA}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One body; `route` is `run` or the part of the path behind `/v1/`."""

    name: str
    route: str
    body: dict[str, Any]


def _chat_tool(**more: Any) -> dict[str, Any]:
    function = {"name": "get_age", "description": "Get an age", "parameters": DRAFT_07, **more}
    return {"type": "function", "function": function}


_TURN = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "functions.get_age:0",
            "type": "function",
            "function": {"name": "get_age", "arguments": '{"name": "Ada", "age": 36}'},
        }
    ],
}

STATED = [
    Recorded(
        name="openai: chat",
        route="chat/completions",
        body={
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            ],
            "model": MODEL,
            "max_completion_tokens": 100,
            "temperature": 0.2,
            "store": True,
            "metadata": {"team": "a"},
            "service_tier": "auto",
            "safety_identifier": "user-1",
            "prompt_cache_key": "session-1",
            "reasoning_effort": "low",
        },
    ),
    Recorded(
        name="openai: streamed chat",
        route="chat/completions",
        body={
            "messages": [{"role": "user", "content": "hi"}],
            "model": MODEL,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    Recorded(
        name="openai: parse",
        route="chat/completions",
        body={
            "messages": [{"role": "user", "content": "Ada is 36"}],
            "model": MODEL,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "Person", "schema": SCHEMA, "strict": True},
            },
        },
    ),
    Recorded(
        name="openai: the second round of a tool",
        route="chat/completions",
        body={
            "messages": [
                {"role": "user", "content": "How old is Ada?"},
                # `message.model_dump()`
                {
                    **_TURN,
                    "refusal": None,
                    "annotations": None,
                    "audio": None,
                    "function_call": None,
                    "reasoning": "I need a tool",
                    "reasoning_content": "I need a tool",
                },
                {"role": "tool", "tool_call_id": "functions.get_age:0", "content": "36"},
            ],
            "model": MODEL,
            "tools": [_chat_tool(strict=True)],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
        },
    ),
    Recorded(
        name="openai: several answers with log probabilities",
        route="chat/completions",
        body={
            "messages": [{"role": "user", "content": "hi"}],
            "model": MODEL,
            "n": 2,
            "logprobs": True,
            "top_logprobs": 2,
            "logit_bias": {"50": -100},
            "seed": 7,
            "stop": ["\n\n"],
            "frequency_penalty": 0.5,
            "presence_penalty": 0.5,
        },
    ),
    Recorded(
        name="openai: completions",
        route="completions",
        body={"model": MODEL, "prompt": "Once", "max_tokens": 16, "stream": True, "best_of": 1},
    ),
    Recorded(
        name="openai: responses",
        route="responses",
        body={
            "input": "hi",
            "model": MODEL,
            "instructions": "Be brief.",
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"effort": "low", "summary": "auto"},
            "store": False,
            "stream": True,
        },
    ),
    Recorded(
        name="openai: the second round of responses",
        route="responses",
        body={
            "input": [
                {"role": "user", "content": "How old is Ada?"},
                {
                    "id": "rs_1_0",
                    "type": "reasoning",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "I need a tool"}],
                    "status": "completed",
                },
                {
                    "arguments": '{"name": "Ada", "age": 36}',
                    "call_id": "functions.get_age:0",
                    "name": "get_age",
                    "type": "function_call",
                    "id": "fc_1_1",
                    "status": "completed",
                },
                {
                    "type": "function_call_output",
                    "call_id": "functions.get_age:0",
                    "output": "36",
                },
            ],
            "model": MODEL,
            "tools": [
                {"type": "function", "name": "get_age", "parameters": SCHEMA, "strict": True}
            ],
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": "Person",
                    "schema": SCHEMA,
                    "strict": True,
                }
            },
        },
    ),
    Recorded(
        name="langchain: invoke with tools",
        route="run",
        body={
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "How old is Ada?"},
                {**_TURN, "content": ""},
                {
                    "role": "tool",
                    "name": None,
                    "content": "36",
                    "tool_call_id": "functions.get_age:0",
                },
            ],
            "temperature": 0.0,
            "stop": None,
            "max_tokens": 512,
            "top_p": 0.9,
            "top_k": 40,
            "repetition_penalty": 1.1,
            "frequency_penalty": 0.1,
            "presence_penalty": 0.1,
            "tools": [_chat_tool()],
            "tool_choice": "required",
        },
    ),
    Recorded(
        name="langchain: structured output",
        route="run",
        body={
            "messages": [{"role": "user", "content": "Ada is 36"}],
            "temperature": 0.0,
            "stop": None,
            "response_format": {"type": "json_schema", "json_schema": {"title": "P", **SCHEMA}},
        },
    ),
    Recorded(
        name="workers-ai-provider: streamText with tools",
        route="run",
        body={
            "max_tokens": 512,
            "messages": [
                {"content": "hi", "role": "user"},
                {**_TURN, "content": "", "reasoning": "I need a tool"},
                {
                    "content": "36",
                    "name": "get_age",
                    "tool_call_id": "functions.get_age:0",
                    "role": "tool",
                },
                {"content": "and then?", "role": "user"},
            ],
            "tools": [_chat_tool()],
            "tool_choice": {"type": "function", "function": {"name": "get_age"}},
            "stream": True,
            "reasoning_effort": None,
            "chat_template_kwargs": {"enable_thinking": False},
        },
    ),
    Recorded(
        name="workers-ai-provider: generateObject",
        route="run",
        body={
            "messages": [{"content": "Ada is 36", "role": "user"}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {**DRAFT_07, "title": "person", "description": "A person"},
            },
        },
    ),
    Recorded(
        name="workers-ai-provider: generateObject without a schema",
        route="run",
        body={
            "messages": [{"content": "Ada is 36", "role": "user"}],
            "response_format": {"type": "json_schema"},
        },
    ),
    Recorded(
        name="cloudflare: run",
        route="run",
        body={"prompt": "hi", "max_tokens": 16, "stream": False},
    ),
    Recorded(
        name="curl: reject if busy",
        route="run",
        body={
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "hi"},
            ],
            "options": {"rejectIfBusy": True},
        },
    ),
]


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    client: str
    route: str
    body: dict[str, Any]


SENT = [
    Recorded(name=f"{sent.client} {n}", route=sent.route, body=sent.body)
    for n, sent in enumerate(msgspec.json.decode(FILE.read_bytes(), type=list[_Body]))
]

RECORDED = [*STATED, *SENT]
