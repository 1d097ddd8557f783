"""A replay as a picture: hit rates, times to first token, times per output token. SVG, no library.

One row of panels for each number of members; one color for each routing, the same in all panels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from .runs import Run

PANEL_WIDTH = 330
PANEL_HEIGHT = 220
MARGIN_LEFT = 62
MARGIN_TOP = 54
GAP_X = 84
GAP_Y = 96
LEGEND_HEIGHT = 34
NUM_POINTS = 100
"""Of a curve: one for each percent."""

# colors that the color-blind can tell apart (Okabe and Ito), without the yellow, which is faint
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
GRAY = "#666666"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    color: str
    values: Sequence[float]
    """Sorted."""


def svg(runs: Sequence[Run], *, title: str) -> str:
    """Return the picture of at least one run."""
    if not runs:
        raise ValueError("there is nothing to plot")
    rows: dict[int | None, list[Run]] = {}
    for run in runs:
        rows.setdefault(run.setting.num_prefill, []).append(run)
    labels = list(dict.fromkeys(_label(run) for run in runs))
    colors = {label: COLORS[i % len(COLORS)] for i, label in enumerate(labels)}
    width = MARGIN_LEFT + 3 * PANEL_WIDTH + 2 * GAP_X + 24
    height = MARGIN_TOP + LEGEND_HEIGHT + len(rows) * (PANEL_HEIGHT + GAP_Y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(MARGIN_LEFT, 24, title, size=15),
        *_legend(colors),
    ]
    for number, row in enumerate(rows.values()):
        top = MARGIN_TOP + LEGEND_HEIGHT + number * (PANEL_HEIGHT + GAP_Y) + 26
        parts += _row(row, colors, top)
    return "\n".join([*parts, "</svg>", ""])


def _row(runs: Sequence[Run], colors: dict[str, str], top: int) -> list[str]:
    lefts = [MARGIN_LEFT + column * (PANEL_WIDTH + GAP_X) for column in range(3)]
    ttfts = [
        _Curve(color=colors[_label(run)], values=sorted(r.ttft_s for r in run.requests))
        for run in runs
    ]
    tpots = [
        _Curve(
            color=colors[_label(run)],
            values=sorted(r.tpot_s * 1000 for r in run.requests if r.tpot_s is not None),
        )
        for run in runs
    ]
    return [
        _text(MARGIN_LEFT, top - 26, _heading(runs), size=13),
        *_bars(runs, colors, lefts[0], top),
        *_curves(ttfts, "time to first token (s, logarithmic)", lefts[1], top),
        *_curves(tpots, "time per output token (ms, logarithmic)", lefts[2], top),
    ]


def _bars(runs: Sequence[Run], colors: dict[str, str], left: int, top: int) -> list[str]:
    highest = max(0.05, *(run.hit_rate for run in runs))
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2) if highest / s <= 6)
    limit = ceil(highest / step + 0.3) * step
    bottom = top + PANEL_HEIGHT
    parts = [_text(left, top - 8, "cache hit rate (% of prompt tokens)", color=GRAY)]
    for tick in range(round(limit / step) + 1):
        y = bottom - PANEL_HEIGHT * tick * step / limit
        parts.append(_line(left, y, left + PANEL_WIDTH, y, "#dddddd"))
        parts.append(_text(left - 8, y + 4, f"{tick * step:.0%}", anchor="end"))
    slot = PANEL_WIDTH / len(runs)
    width = min(slot * 0.7, 60)
    for number, run in enumerate(runs):
        center = left + slot * (number + 0.5)
        height = PANEL_HEIGHT * run.hit_rate / limit
        parts.append(
            f'<rect x="{center - width / 2:.1f}" y="{bottom - height:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" fill="{colors[_label(run)]}"/>'
        )
        parts.append(_text(center, bottom - height - 5, f"{run.hit_rate:.1%}", anchor="middle"))
        parts.append(_text(center, bottom + 16, _label(run), anchor="middle", size=10))
    return [*parts, _line(left, bottom, left + PANEL_WIDTH, bottom, GRAY)]


def _curves(curves: Sequence[_Curve], name: str, left: int, top: int) -> list[str]:
    """Draw which share of the requests took at most so long."""
    bottom = top + PANEL_HEIGHT
    parts = [_text(left, top - 8, "share of requests", color=GRAY)]
    for percent in (0, 25, 50, 75, 90, 100):
        y = bottom - PANEL_HEIGHT * percent / 100
        parts.append(_line(left, y, left + PANEL_WIDTH, y, "#dddddd"))
        parts.append(_text(left - 8, y + 4, f"{percent}%", anchor="end"))
    positive = [value for curve in curves for value in curve.values if value > 0]
    if not positive:
        middle = left + PANEL_WIDTH / 2
        return [*parts, _text(middle, top + PANEL_HEIGHT / 2, "not measured", anchor="middle")]
    ticks = _ticks(min(positive), max(positive))
    low, high = log10(ticks[0]), log10(ticks[-1])
    for tick in ticks:
        x = left + PANEL_WIDTH * _place(tick, low, high)
        parts.append(_line(x, top, x, bottom, "#dddddd"))
        parts.append(_text(x, bottom + 16, f"{tick:g}", anchor="middle"))
    for curve in curves:
        if not curve.values:
            continue
        points = " ".join(
            f"{left + PANEL_WIDTH * _place(value, low, high):.1f},{bottom - PANEL_HEIGHT * share:.1f}"
            for value, share in _steps(curve.values)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{curve.color}" stroke-width="2"/>'
        )
    parts.append(_text(left + PANEL_WIDTH / 2, bottom + 34, name, anchor="middle", color=GRAY))
    return [*parts, _line(left, bottom, left + PANEL_WIDTH, bottom, GRAY)]


def _steps(ordered: Sequence[float]) -> list[tuple[float, float]]:
    num_points = min(NUM_POINTS, len(ordered))
    picked = [(number + 1) * len(ordered) // num_points - 1 for number in range(num_points)]
    return [(ordered[0], 0.0), *((ordered[i], (i + 1) / len(ordered)) for i in picked)]


def _ticks(least: float, most: float) -> list[float]:
    """Return 1, 2, 5, 10, ... from before the least to after the most; fewer of them if they are many."""
    first, last = floor(log10(least)), ceil(log10(most)) + 1
    digits = (1,) if last - first > 4 else (1, 2, 5)
    known = [
        float(f"{digit}e{exponent}") for exponent in range(first, last + 1) for digit in digits
    ]
    start = max(i for i, tick in enumerate(known) if tick <= least)
    end = min(i for i, tick in enumerate(known) if tick >= most and i > start)
    return known[start : end + 1]


def _place(value: float, low: float, high: float) -> float:
    return (log10(value) - low) / (high - low) if value > 0 else 0.0


def _legend(colors: dict[str, str]) -> list[str]:
    parts: list[str] = []
    x = MARGIN_LEFT
    for label, color in colors.items():
        parts.append(f'<rect x="{x}" y="40" width="12" height="12" fill="{color}"/>')
        parts.append(_text(x + 18, 51, label))
        # a letter is about seven wide
        x += 40 + 7 * len(label)
    return parts


def _heading(runs: Sequence[Run]) -> str:
    # an endless cache has no size; the others of the row are alike
    setting = next((r.setting for r in runs if r.setting.cache_tokens), runs[0].setting)
    if setting.num_prefill is None:
        return "a running system"
    cache = "no limit" if setting.cache_tokens is None else f"{setting.cache_tokens:,} tokens"
    decode = f", {setting.num_decode} decode" if setting.num_decode else ""
    return (
        f"{setting.num_prefill} prefill members{decode}, cache of each prefill member: {cache}, "
        f"speed {setting.speed:g}"
    )


def _label(run: Run) -> str:
    return run.setting.routing or "measured"


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 12,
    color: str = "#222222",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{color}">{escape(text)}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'
