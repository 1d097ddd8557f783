"""Whatever a client sends, it gets a request or an error of its own."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, strategies as st

from support.requests import USER, a_call, parsed_body
from tenantry_runtime.core import GenerateRequest
from tenantry_runtime.edge.workers_ai import RunInput
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

FIELDS = sorted(RunInput.__struct_fields__)
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
    {"messages": st.lists(ALMOST_A_MESSAGE, max_size=4)},
    optional={name: ANY_JSON for name in FIELDS if name != "messages"},
)


def check(body: bytes) -> None:
    try:
        request = parsed_body(body)
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


@given(st.integers(0, 3000), st.sampled_from([b"[", b'{"a":']))
def test_nesting_of_any_depth_is_a_request_or_a_request_error(depth: int, opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    nested = opening * depth + b"1" + closing * depth
    check(b'{"prompt": "a", "metadata": {"x": ' + nested + b"}}")
    check(b'{"prompt": "a", "tools": [{"name": "f", "parameters": {"x": ' + nested + b"}}]}")
    check(b'{"prompt": "a", "n": ' + nested + b"}")
