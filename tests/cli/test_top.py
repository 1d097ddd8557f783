"""`workerctl top`: rates between two looks, bars that add up, and errors that say what to do."""

from __future__ import annotations

from io import StringIO

import httpx
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from rich.console import Console

from tenantry_cli.top import top
from tenantry_cli.top_view import compact, page_cells, rate, view
from tenantry_runtime.edge.operator.report import (
    IncidentOverview,
    NodeOverview,
    Overview,
    TenantOverview,
)
from tenantry_runtime.pool.pool_report import PoolReport, StepCounts

POOL = PoolReport(
    model="@cf/moonshotai/kimi-k2.6",
    phases=("prefill", "decode"),
    pages={"free": 50, "private": 30, "shared": 15, "quiescing": 5, "quarantined": 0},
    num_running=3,
    num_waiting=2,
    num_prompt_tokens=200,
    num_cached_tokens=50,
    steps={"prefill": StepCounts(1, 1, 100, 1), "decode": StepCounts(10, 40, 40, 1)},
)


def an_overview(time_ms: int, pool: PoolReport) -> Overview:
    node = NodeOverview(address="unix:node.sock", is_up=True, pools=(pool,))
    tenants = [
        TenantOverview(
            tenant=name, weight=weight, guaranteed=0.1, ceiling=0.5, service=5.0, num_pages=4
        )
        for name, weight in (("acme", 3.0), ("bolt", 1.0))
    ]
    return Overview(
        time_ms=time_ms,
        num_open_requests=7,
        num_unrecorded=0,
        nodes=[node],
        tenants=tenants,
        usage=[],
        incidents=[],
        latencies={},
    )


def shown(overview: Overview, before: Overview | None, *, width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=StringIO())
    console.print(view(overview, before))
    return console.export_text().splitlines()


def test_paces_are_what_was_done_between_two_looks() -> None:
    steps = {"prefill": StepCounts(2, 2, 300, 1), "decode": StepCounts(20, 120, 120, 1)}
    later = an_overview(2000, replace(POOL, steps=steps))
    [line] = [each for each in shown(later, an_overview(0, POOL)) if "kimi" in each]
    # 280 tokens in two seconds; 80 rows in 10 steps; 50 of 200 prompt tokens
    assert line.split()[1:7] == ["prefill+decode", "3", "2", "8.0", "140", "25%"]


def test_a_node_that_began_anew_has_no_pace_yet() -> None:
    assert rate(5, 100, 1.0) == "-"
    assert rate(5, None, 1.0) == "-"
    assert rate(25, 5, 2.0) == "10"


def test_incidents_of_all_kinds_are_shown_as_text() -> None:
    lost = IncidentOverview(
        id="i",
        kind="node_lost",
        began_ms=1_700_000_000_000,
        ended_ms=None,
        node="unix:[red]node",
        model="",
        tenants=("acme", "bolt"),
        detail="Socket closed",
    )
    [line] = [
        each
        for each in shown(replace(an_overview(0, POOL), incidents=[lost]), None, width=100)
        if "node_lost" in each
    ]
    assert "11-14 22:13:20" in line
    assert all(text in line for text in ("unix:[red]node", "acme, bolt", "Socket closed"))


def test_tenants_are_compared_with_their_promise() -> None:
    lines = shown(an_overview(0, POOL), None)
    [acme] = [line.split() for line in lines if line.startswith("acme")]
    assert acme == ["acme", "50%", "75%", "4", "10%", "50%"]


def test_bars_use_every_cell() -> None:
    cells = dict(page_cells(POOL, 24))
    assert sum(cells.values()) == 24
    assert cells["free"] == 12
    # 1.2 of 24
    assert cells["quiescing"] == 1
    assert sum(n for _, n in page_cells(PoolReport(model="m", phases=(), pages={}), 24)) == 24


def test_numbers_are_short() -> None:
    assert [compact(n) for n in (0, 3.14159, 99.94, 140, 1234, 999_600)] == [
        "0",
        "3.14",
        "99.9",
        "140",
        "1.23k",
        "1M",
    ]


def test_a_long_address_takes_no_room_from_numbers() -> None:
    overview = an_overview(0, POOL)
    [node] = overview.nodes
    lines = shown(replace(overview, nodes=[replace(node, address="unix:/" + "x" * 200)]), None)
    assert max(map(len, lines)) <= 80
    [line] = [each for each in lines if "kimi" in each]
    assert line.split()[1:4] == ["prefill+decode", "3", "2"]


@pytest.mark.parametrize(
    ("status", "said"),
    [(403, "token create"), (404, "edge.operator"), (503, "answered with 503")],
)
def test_a_refusal_says_what_to_do(monkeypatch: pytest.MonkeyPatch, status: int, said: str) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status))
    client = httpx.Client
    monkeypatch.setattr("httpx.Client", lambda **options: client(transport=transport, **options))
    result = CliRunner().invoke(top, ["--once", "--token", "t"])
    assert result.exit_code == 1
    assert said in result.output


def test_an_edge_that_is_not_there_is_named() -> None:
    result = CliRunner().invoke(top, ["--once", "--token", "t", "--url", "http://127.0.0.1:9"])
    assert result.exit_code == 1
    assert "http://127.0.0.1:9 does not answer" in result.output


def test_nobody_is_asked_for_a_token_where_there_is_no_terminal() -> None:
    result = CliRunner().invoke(top, [], env={"TENANTRY_OPERATOR_TOKEN": ""})
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--token" in result.stderr


def test_a_token_that_no_header_holds_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(403))
    client = httpx.Client
    monkeypatch.setattr("httpx.Client", lambda **options: client(transport=transport, **options))
    # not a terminal, so one look
    result = CliRunner().invoke(top, ["--token", "ü"])
    assert result.exit_code == 1
    assert "token create" in result.output
