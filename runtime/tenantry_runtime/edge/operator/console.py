"""The operator's page: made on the server, with plots as SVG; a script replaces its main part every two
seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import jinja2

from tenantry_runtime.pool.page_map import PageMaps
from tenantry_runtime.pool.pool_report import PoolReport
from tenantry_runtime.telemetry.metrics.recent import BUCKET_S

from .map_image import css, data_url
from .report import Overview, TenantOverview

STATES = ("private", "shared", "quiescing", "quarantined", "free")
"""In the order of the bar; the styles have a color for each."""

PLOT_WIDTH, PLOT_HEIGHT = 240, 48


class Segment(NamedTuple):
    """A part of a bar."""

    kind: str
    title: str
    percent: float


def page(overview: Overview) -> str:
    """Return the whole page."""
    return (
        _templates()
        .get_template("console.html")
        .render(
            overview=overview,
            bars={id(pool): page_bar(pool) for node in overview.nodes for pool in node.pools},
            shares=shares(overview.tenants),
            plots={model: _plots(slices) for model, slices in overview.latencies.items()},
        )
    )


class NodeMaps(NamedTuple):
    """The maps of one node's pages; None: it does not answer."""

    address: str
    maps: PageMaps | None


def pages_page(nodes: Sequence[NodeMaps]) -> str:
    """Return the page of maps."""
    return _templates().get_template("pages.html").render(nodes=nodes)


def login_page(problem: str = "") -> str:
    return _templates().get_template("login.html").render(problem=problem)


def page_bar(pool: PoolReport) -> list[Segment]:
    """Return a pool's pages by state, as parts of a bar."""
    num_pages = sum(pool.pages.values()) or 1
    return [
        Segment(
            state, f"{pool.pages.get(state, 0)} {state}", 100 * pool.pages.get(state, 0) / num_pages
        )
        for state in STATES
    ]


def shares(tenants: Sequence[TenantOverview]) -> dict[str, tuple[float, float]]:
    """Return of each tenant what part of the service it had lately, and what part its weight promises.

    The promise is among those that are shown: those that have work.
    """
    service = sum(each.service for each in tenants) or 1.0
    weight = sum(each.weight for each in tenants) or 1.0
    return {
        each.tenant: (100 * each.service / service, 100 * each.weight / weight) for each in tenants
    }


# Any: `Slice`s as JSON has them
def _plots(slices: list[dict[str, Any]]) -> dict[str, Any]:
    first = [tuple(each["first_token_s"]) for each in slices]
    per_token = [tuple(each["per_token_s"]) for each in slices]
    tokens = [(float(each["num_tokens"]),) for each in slices]
    return {
        "first token": plot(first, "s"),
        "per token": plot(per_token, "s"),
        f"tokens in {BUCKET_S:.0f} s": plot(tokens, ""),
    }


class Plot(NamedTuple):
    """Lines over the last minutes, each a polyline's points in a box of `PLOT_WIDTH` by `PLOT_HEIGHT`."""

    lines: tuple[str, ...]
    most: str
    """What the upper edge stands for."""


def plot(rows: Sequence[tuple[float, ...]], unit: str) -> Plot:
    """Return a line for each of the values that the rows have; rows without any leave a gap bridged."""
    most = max((max(row) for row in rows if row), default=0.0)
    num_lines = max((len(row) for row in rows), default=0)
    step = PLOT_WIDTH / max(len(rows) - 1, 1)
    lines = []
    for number in range(num_lines):
        points = [
            f"{n * step:.1f},{PLOT_HEIGHT - PLOT_HEIGHT * row[number] / most:.1f}"
            for n, row in enumerate(rows)
            if row and most
        ]
        lines.append(" ".join(points))
    return Plot(tuple(lines), _rounded(most, unit))


def _rounded(value: float, unit: str) -> str:
    if unit == "s" and value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s" if unit else f"{value:,.0f}"


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["identity"] = id
    environment.filters["moment"] = _moment
    environment.filters["data_url"] = data_url
    environment.filters["css"] = css
    return environment


def _moment(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@cache
def script() -> str:
    """Return the page's script."""
    return (files(__package__) / "templates" / "console.js").read_text(encoding="utf-8")
