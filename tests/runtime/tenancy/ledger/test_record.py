from __future__ import annotations

from dataclasses import dataclass

import pytest

from support.ledgers import some_facts
from tenantry_runtime.core import Usage
from tenantry_runtime.tenancy import Interruption, schema
from tenantry_runtime.tenancy.ledger import UsageRecord, billed
from tenantry_runtime.tenancy.ledger.record import make_record

GENERATED = Usage(prompt_tokens=100, completion_tokens=9, cached_tokens=64, reasoning_tokens=4)
DELIVERED = Usage(prompt_tokens=100, completion_tokens=5, cached_tokens=64, reasoning_tokens=2)
NO_TOKEN_YET = Usage(prompt_tokens=100, completion_tokens=0)
NOTHING = Usage(prompt_tokens=0, completion_tokens=0)

OURS = [
    Interruption.FAILED,
    Interruption.TIMEOUT,
    Interruption.EDGE_CLOSING,
    Interruption.EDGE_LOST,
]


@dataclass(frozen=True)
class Case:
    why: Interruption | None
    delivered: Usage | None
    generated: Usage
    billed: Usage


CASES = {
    "whole, streamed": Case(None, DELIVERED, GENERATED, GENERATED),
    "whole, not streamed": Case(None, None, GENERATED, GENERATED),
    "client gone, streamed": Case(Interruption.CLIENT_GONE, DELIVERED, GENERATED, GENERATED),
    "client gone, not streamed": Case(Interruption.CLIENT_GONE, None, GENERATED, GENERATED),
    "client gone before the first token": Case(
        Interruption.CLIENT_GONE, None, NO_TOKEN_YET, NOTHING
    ),
    **{f"{why}, streamed": Case(why, DELIVERED, GENERATED, DELIVERED) for why in OURS},
    **{f"{why}, nothing delivered": Case(why, None, GENERATED, NOTHING) for why in OURS},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_billed_is_as_the_table_says(case: Case) -> None:
    assert billed(case.why, delivered=case.delivered, generated=case.generated) == case.billed


def test_every_interruption_has_a_row() -> None:
    assert {case.why for case in CASES.values()} == {None, *Interruption}


def test_a_record_is_a_row_of_the_table() -> None:
    assert list(UsageRecord.__struct_fields__) == schema.usage.columns.keys()


def test_outcomes_fit_their_column() -> None:
    width = schema.usage.c.outcome.type.length  # type: ignore[attr-defined]  # of a string

    assert all(len(why) <= width for why in Interruption)


def test_a_record_has_the_prices_of_its_start_and_the_cost_by_them() -> None:
    record = make_record(some_facts(), GENERATED, ended_ms=2, outcome="stop")

    assert (record.input_price, record.cached_price, record.output_price) == (7, 3, 11)
    # 36 uncached, 64 cached and 9 output tokens
    assert record.cost == 36 * 7 + 64 * 3 + 9 * 11
    assert (record.input_tokens, record.cached_tokens) == (100, 64)
    assert (record.output_tokens, record.reasoning_tokens) == (9, 4)
