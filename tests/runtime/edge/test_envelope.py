from __future__ import annotations

import json

import msgspec
import pytest

from tenantry_runtime.edge import envelope
from tenantry_runtime.errors import (
    CapacityExceeded,
    CheckpointError,
    ContextExceeded,
    Forbidden,
    InvalidInput,
    RouteNotFound,
    TenantryError,
    UnknownModel,
)


def test_a_success_has_the_four_fields_and_no_result_info() -> None:
    assert (
        envelope.success({"a": 1}) == b'{"result":{"a":1},"success":true,"errors":[],"messages":[]}'
    )


def test_a_list_says_which_page_it_is() -> None:
    info = envelope.ResultInfo(page=1, per_page=50, count=1, total_count=3)

    assert json.loads(envelope.success([1], info))["result_info"] == {
        "page": 1,
        "per_page": 50,
        "count": 1,
        "total_count": 3,
    }


def test_a_result_that_is_printed_already_goes_in_as_it_is() -> None:
    assert b'"result":[1,  2],' in envelope.success(msgspec.Raw(b"[1,  2]"))


def test_an_error_of_workers_ai_has_an_empty_result() -> None:
    assert envelope.failure(InvalidInput("messages[0].content", "must be text")) == (
        b'{"errors":[{"code":5006,"message":"AiError: Bad input: \'/messages/0/content\': '
        b'must be text"}],"success":false,"result":{},"messages":[]}'
    )


def test_an_error_of_the_gateway_has_a_null_result() -> None:
    assert envelope.failure(RouteNotFound()) == (
        b'{"errors":[{"code":7000,"message":"No route for that URI"}],'
        b'"success":false,"result":null,"messages":[]}'
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InvalidInput("", "the body is empty"), "AiError: Bad input: the body is empty"),
        (UnknownModel("x", ("y",)), "No such model x; did you mean y?"),
        (CapacityExceeded(), "Capacity temporarily exceeded, please try again."),
        (
            ContextExceeded(262334, 262144),
            "The estimated number of input and maximum output tokens (262334) exceeded this "
            "model context window limit (262144)",
        ),
        (Forbidden(), "Authentication error"),
        (TenantryError(), "Internal server error"),
        (CheckpointError("/srv/secret/config.json", None, "gone"), "Internal server error"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TenantryError) else "",
)
def test_messages_are_what_clients_of_cloudflare_know(error: TenantryError, message: str) -> None:
    assert envelope.message(error) == message


@pytest.mark.parametrize(
    ("field", "pointer"),
    [
        ("max_tokens", "/max_tokens"),
        ("messages[10].tool_calls[0].id", "/messages/10/tool_calls/0/id"),
        ("x-session-affinity", "x-session-affinity"),
        ("?page", "?page"),
    ],
)
def test_a_field_is_shown_as_a_pointer(field: str, pointer: str) -> None:
    assert envelope.pointer(field) == pointer
