"""One view of `workerctl top`: an overview, with rates against an earlier one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    # a base install lacks what it imports
    from tenantry_runtime.edge.operator.report import NodeOverview, Overview
    from tenantry_runtime.pool.pool_report import PoolReport

MAX_TENANTS = 12
MAX_INCIDENTS = 5
BAR_CELLS = 16
MAX_TEXT_CELLS = 30
STATES = (
    ("private", "blue"),
    ("shared", "green"),
    ("quiescing", "yellow"),
    ("quarantined", "red"),
    ("free", "bright_black"),
)


def view(overview: Overview, before: Overview | None) -> RenderableType:
    """Return what is shown; without an earlier overview there are no rates."""
    from rich.console import Group
    from rich.text import Text

    moment = datetime.fromtimestamp(overview.time_ms / 1000, UTC).strftime("%H:%M:%S UTC")
    num_up = sum(node.is_up for node in overview.nodes)
    head = Text.assemble(
        (moment, "dim"),
        f"  {overview.num_open_requests} open requests  ",
        (
            f"{num_up} of {len(overview.nodes)} nodes",
            "" if num_up == len(overview.nodes) else "red",
        ),
        f"  {overview.num_unrecorded} records wait",
    )
    return Group(
        head, "", _pools(overview, before), "", _tenants(overview), "", _incidents(overview)
    )


def rate(after: float, before: float | None, seconds: float) -> str:
    """Return a counter's pace; one that has begun anew, or has no past, has none."""
    if before is None or after < before or seconds <= 0:
        return "-"
    return compact((after - before) / seconds)


def compact(number: float) -> str:
    """Return a number in about three digits: 12.3k."""
    for unit in ("", "k", "M", "G"):
        if abs(number) < 999.5:
            return f"{number:.0f}{unit}" if abs(number) >= 100 else f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}T"


def page_cells(pool: PoolReport, num_cells: int = BAR_CELLS) -> list[tuple[str, int]]:
    """Return how many cells of a bar each state has; all cells are used, the largest rests first."""
    pages = pool.pages if sum(pool.pages.values()) else {"free": 1}
    num_pages = sum(pages.values())
    exact = {state: num_cells * pages.get(state, 0) / num_pages for state, _ in STATES}
    cells = {state: int(value) for state, value in exact.items()}
    by_rest = sorted(exact, key=lambda state: cells[state] - exact[state])
    for state in by_rest[: num_cells - sum(cells.values())]:
        cells[state] += 1
    return [(state, cells[state]) for state, _ in STATES]


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        name = column.rstrip(">")
        is_number = column.endswith(">")
        # an address may be as long as a path can be; what tells nodes apart is mostly at its beginning
        table.add_column(
            name,
            justify="right" if is_number else "left",
            no_wrap=True,
            max_width=None if is_number else MAX_TEXT_CELLS,
        )
    return table


def _pools(overview: Overview, before: Overview | None) -> Table:
    from rich.text import Text

    table = _table("pool", "run>", "wait>", "batch>", "tok/s>", "cached>", "pages")
    earlier = {} if before is None else {_key(n, p): p for n in before.nodes for p in n.pools}
    seconds = 0.0 if before is None else (overview.time_ms - before.time_ms) / 1000
    for node in overview.nodes:
        state, style = _state(node)
        table.add_row(Text.assemble((node.address, "bold"), " ", (state, style)))
        for pool in node.pools:
            past = earlier.get(_key(node, pool))
            table.add_row(
                f"  {pool.model.rpartition('/')[2]} {'+'.join(pool.phases)}",
                str(pool.num_running),
                str(pool.num_waiting),
                _batch(pool, past),
                rate(_tokens(pool), None if past is None else _tokens(past), seconds),
                _cached(pool),
                _bar(pool),
            )
    return table


def _key(node: NodeOverview, pool: PoolReport) -> tuple[str, str, tuple[str, ...]]:
    return node.address, pool.model, pool.phases


def _state(node: NodeOverview) -> tuple[str, str]:
    if not node.is_up:
        return "does not answer", "red"
    return ("draining", "yellow") if node.is_draining else ("up", "green")


def _tokens(pool: PoolReport) -> int:
    return sum(counts.num_tokens for counts in pool.steps.values())


def _batch(pool: PoolReport, past: PoolReport | None) -> str:
    """Return the mean batch of decode steps since the earlier look."""
    counts = pool.steps.get("decode")
    before = past.steps.get("decode") if past is not None else None
    if counts is None or before is None or counts.num_steps <= before.num_steps:
        return "-"
    num_steps = counts.num_steps - before.num_steps
    return f"{(counts.num_sequences - before.num_sequences) / num_steps:.1f}"


def _cached(pool: PoolReport) -> str:
    if not pool.num_prompt_tokens:
        return "-"
    return f"{100 * pool.num_cached_tokens / pool.num_prompt_tokens:.0f}%"


def _bar(pool: PoolReport) -> RenderableType:
    from rich.text import Text

    styles = dict(STATES)
    bar = Text()
    for state, num_cells in page_cells(pool):
        bar.append(("░" if state == "free" else "█") * num_cells, styles[state])
    return bar


def _tenants(overview: Overview) -> Table:
    table = _table("tenant", "had>", "promised>", "pages>", "guaranteed>", "ceiling>")
    service = sum(each.service for each in overview.tenants) or 1.0
    weight = sum(each.weight for each in overview.tenants) or 1.0
    for tenant in overview.tenants[:MAX_TENANTS]:
        table.add_row(
            tenant.tenant,
            f"{100 * tenant.service / service:.0f}%",
            f"{100 * tenant.weight / weight:.0f}%",
            str(tenant.num_pages),
            f"{100 * tenant.guaranteed:.0f}%",
            f"{100 * tenant.ceiling:.0f}%",
        )
    if not overview.tenants:
        table.add_row("nobody was served lately")
    return table


def _incidents(overview: Overview) -> RenderableType:
    from rich.text import Text

    if not overview.incidents:
        return Text("no incidents", "dim")
    table = _table("incident", "kind", "node", "tenants", "detail")
    for each in overview.incidents[:MAX_INCIDENTS]:
        moment = datetime.fromtimestamp(each.began_ms / 1000, UTC).strftime("%m-%d %H:%M:%S")
        # text, as what a node or a tenant is called may look like markup
        cells = (each.kind, each.node, ", ".join(each.tenants), each.detail)
        style = "red" if each.ended_ms is None else ""
        table.add_row(moment, *(Text(cell, style) for cell in cells))
    return table
