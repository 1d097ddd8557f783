from __future__ import annotations

import re
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import (
    faas_attributes,
    gen_ai_attributes,
    http_attributes,
    rpc_attributes,
    server_attributes,
)
from opentelemetry.semconv.attributes import error_attributes

from tenantry_runtime.telemetry import names

PAGE = Path(__file__).resolve().parents[3] / "docs" / "traces.md"

ATTRIBUTES = {
    name: value
    for name, value in vars(names).items()
    if name.isupper() and isinstance(value, str) and not name.endswith("_EVENT")
}
OWN = {value for value in ATTRIBUTES.values() if value.startswith("tenantry.")}

_CONVENTIONS = (
    *(faas_attributes, gen_ai_attributes, http_attributes, rpc_attributes, server_attributes),
    error_attributes,
)


@pytest.mark.parametrize("name", sorted(set(ATTRIBUTES.values()) - OWN))
def test_a_name_that_is_not_our_own_is_one_of_the_conventions(name: str) -> None:
    values = (value for module in _CONVENTIONS for value in vars(module).values())
    assert name in {value for value in values if isinstance(value, str)}


def test_the_page_has_every_attribute_and_no_other() -> None:
    text = PAGE.read_text()
    table = {row.split("`")[1] for row in text.splitlines() if row.startswith("| `tenantry.")}
    assert table == OWN
    quoted = set(re.findall(r"`((?:gen_ai|http|rpc|server|error|faas)\.[a-z_.]+)`", text))
    assert quoted == set(ATTRIBUTES.values()) - OWN


def test_the_page_has_every_event() -> None:
    text = PAGE.read_text()
    for event in (names.RETRY_EVENT, names.PREEMPTED_EVENT):
        assert f"`{event}`" in text
