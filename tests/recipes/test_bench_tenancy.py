"""The benchmarks of limits, and of tenancy over an edge: they run, and show what they say they do."""

from __future__ import annotations

import pytest

from tenantry_recipes.bench.spread import Spread
from tenantry_recipes.bench.tenancy import edge, limits
from tenantry_recipes.bench.tenancy.rounds import Options


@pytest.mark.asyncio
async def test_limits_are_measured_for_every_kind_of_plan() -> None:
    options = Options(store=None, num_requests=8, num_rounds=2, concurrency=2)
    figures = await limits.measure(options)

    assert [each.name for each in figures] == ["none", "rates, SQLite", "all, SQLite"]
    for each in figures:
        assert each.requests_per_s.least > 0
        assert each.wait_us.least > 0
    # a transaction takes longer than none
    assert figures[1].wait_us.median > 10 * figures[0].wait_us.median


@pytest.mark.asyncio
async def test_an_edge_is_measured_with_and_without() -> None:
    options = Options(store=None, num_requests=4, num_rounds=1, concurrency=2)
    figures = await edge.measure(options)

    assert [each.name for each in figures] == ["bare, SQLite", "limits, SQLite", "ledger, SQLite"]
    assert all(each.requests_per_s.least > 0 for each in figures)


def test_more_is_than_the_bare_edge_at_the_same_store() -> None:
    def figures(name: str, processor_us: float) -> edge.Figures:
        return edge.Figures(
            name=name,
            requests_per_s=Spread.of([1.0]),
            processor_us=Spread.of([processor_us]),
        )

    report = edge.report(
        [
            figures("bare, a", 100),
            figures("limits, a", 150),
            figures("bare, b", 200),
            figures("limits, b", 207),
        ]
    )
    assert [line.split("|")[4].strip() for line in report.splitlines()[2:]] == [
        "0.00",
        "50.0",
        "0.00",
        "7.00",
    ]
