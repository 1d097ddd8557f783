"""Replays as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .tables import columns

if TYPE_CHECKING:
    from tenantry_runtime.replay.runs import Run


def replay_table(runs: Sequence[Run]) -> str:
    """One line per replay. A hit rate without the size of the caches says nothing: both are there."""
    header = (
        *("ROUTING", "PREFILL", "CACHE EACH", "REQUESTS", "HIT RATE"),
        *("TTFT P50", "P90", "P99", "TPOT P50", "P90", "P99"),
        *("IN TOK/S", "OUT TOK/S", "BUSIEST"),
    )
    return columns([header, *map(_cells, runs)], right_aligned=set(range(1, len(header))))


def remarks(run: Run) -> Iterator[str]:
    """Yield what went wrong or was not as asked."""
    for kind, number in run.errors.items():
        yield f"{number} requests failed: {kind}"
    if run.num_late:
        yield (
            f"{run.num_late} requests were sent late, the latest by {run.latest_s:.1f} s: "
            "--concurrency was reached"
        )
    if run.num_preemptions:
        yield f"{run.setting.routing}: {run.num_preemptions} preemptions while decoding"


def _cells(run: Run) -> tuple[str, ...]:
    from tenantry_runtime.replay.measures import summary

    whole = summary(run.requests)
    setting = run.setting
    return (
        setting.routing or "measured",
        "-" if setting.num_prefill is None else str(setting.num_prefill),
        "-" if setting.cache_tokens is None else f"{setting.cache_tokens:,}",
        str(whole.num_requests) if run.hits is None else "-",
        f"{run.hit_rate:.2%}",
        *_times(whole.ttft_s, 1, "s"),
        *_times(whole.tpot_s, 1000, "ms"),
        f"{whole.prompt_tokens_per_s:,.0f}" if whole.num_requests else "-",
        f"{whole.output_tokens_per_s:,.0f}" if whole.num_requests else "-",
        "-" if run.imbalance is None else f"{run.imbalance:.2f}x",
    )


def _times(values: tuple[float, ...] | None, factor: float, unit: str) -> tuple[str, ...]:
    if values is None:
        return ("-", "-", "-")
    p50, p90, p99 = (f"{value * factor:.2f} {unit}" for value in values)
    return p50, p90, p99
