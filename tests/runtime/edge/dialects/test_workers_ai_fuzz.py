"""Whatever a client sends, in whatever dialect, it gets a request or an error of its own."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, strategies as st

from support.dialects import DIALECTS
from support.requests import USER, a_call, a_target
from tenantry_runtime.core import GenerateRequest
from tenantry_runtime.edge.dialects.completions import CompletionsInput
from tenantry_runtime.edge.dialects.openai_chat import ChatCompletionInput
from tenantry_runtime.edge.dialects.responses import ResponsesInput
from tenantry_runtime.edge.dialects.responses_input import ITEMS
from tenantry_runtime.edge.dialects.workers_ai import RunInput, WorkersAI
from tenantry_runtime.errors import RequestError

ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=())),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4)
    ),
    max_leaves=20,
)

INPUTS: dict[str, type[msgspec.Struct]] = {
    "run": RunInput,
    "chat/completions": ChatCompletionInput,
    "completions": CompletionsInput,
    "responses": ResponsesInput,
}
FIELDS = sorted({name for fields in INPUTS.values() for name in fields.__struct_fields__})
ROLES = ["system", "developer", "user", "assistant", "tool", "function", "robot"]
MESSAGE_FIELDS = ["content", "name", "tool_calls", "tool_call_id", "reasoning", "refusal", "x"]

# near what is right, where arbitrary JSON never comes
ALMOST_A_MESSAGE = st.one_of(
    st.just(USER),
    st.fixed_dictionaries(
        {"role": st.sampled_from(ROLES)},
        optional={
            name: ANY_JSON | st.just("text") | st.just([a_call()]) for name in MESSAGE_FIELDS
        },
    ),
)
ALMOST_A_BODY = st.fixed_dictionaries(
    {"model": st.just("kimi-k2.6"), "messages": st.lists(ALMOST_A_MESSAGE, max_size=4)},
    optional={name: ANY_JSON for name in FIELDS if name not in ("model", "messages")},
)


ALMOST_AN_ITEM = st.one_of(
    st.just({"role": "user", "content": "hi"}),
    st.just({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}),
    st.fixed_dictionaries(
        {"type": st.sampled_from([*ITEMS, "item_reference"])},
        optional={
            name: ANY_JSON | st.just("c")
            for name in ("role", "content", "call_id", "output", "name", "arguments", "summary")
        },
    ),
)


def check(body: bytes) -> None:
    for dialect in (WorkersAI(), *DIALECTS.values()):
        try:
            dialect.model(body)
            request = dialect.parse(body, a_target(), session=None)
        except RequestError as error:
            str(error).encode()
        else:
            assert isinstance(request, GenerateRequest)


@given(st.binary())
def test_arbitrary_bytes_are_a_request_or_a_request_error(body: bytes) -> None:
    check(body)


@given(ANY_JSON)
def test_arbitrary_json_is_a_request_or_a_request_error(value: Any) -> None:
    check(json.dumps(value).encode())


@given(st.dictionaries(st.sampled_from(FIELDS), ANY_JSON))
def test_arbitrary_values_of_known_fields_are_a_request_or_a_request_error(
    fields: dict[str, Any],
) -> None:
    check(json.dumps(fields).encode())


@given(ALMOST_A_BODY)
def test_almost_right_bodies_are_a_request_or_a_request_error(fields: dict[str, Any]) -> None:
    check(json.dumps(fields).encode())


@given(st.lists(ALMOST_AN_ITEM, max_size=5))
def test_almost_right_items_are_a_request_or_a_request_error(items: list[Any]) -> None:
    check(json.dumps({"model": "m", "input": items}).encode())


@given(st.integers(0, 3000), st.sampled_from([b"[", b'{"a":']))
def test_nesting_of_any_depth_is_a_request_or_a_request_error(depth: int, opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    nested = opening * depth + b"1" + closing * depth
    check(b'{"prompt": "a", "metadata": {"x": ' + nested + b"}}")
    check(b'{"prompt": "a", "tools": [{"name": "f", "parameters": {"x": ' + nested + b"}}]}")
    check(b'{"prompt": "a", "n": ' + nested + b"}")
    check(b'{"model": "m", "prompt": "a", "metadata": {"x": ' + nested + b"}}")
    check(b'{"model": "m", "input": [{"role": "user", "content": ' + nested + b"}]}")
    schema = b'{"type": "json_schema", "json_schema": {"x": ' + nested + b"}}"
    check(b'{"prompt": "a", "response_format": ' + schema + b"}")
