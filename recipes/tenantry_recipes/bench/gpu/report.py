"""Check each op, time it, and set the figures in a table with the goals below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tenantry_recipes.bench.table import number, table

from . import indexing, pages, products
from .case import Case, Source
from .clock import Clock
from .shapes import Load, ModelShape
from .work import Work

HEADER = ("op", "model", "shape", "us", "GB/s", "TFLOP/s", "of copy", "goal", "error")
INT4_OVER_FP8_GOAL = 1.6
CHECK_SHARE_GOAL = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one case gave; no time where the result was wrong."""

    op: str
    model: str
    shape: str
    error: float
    tolerance: float
    work: Work
    seconds: float | None
    copy_bandwidth: float
    """Of the same card, in bytes per second."""
    goal: float | None

    @property
    def gigabytes_per_s(self) -> float | None:
        return None if self.seconds is None else self.work.num_bytes / self.seconds / 1e9

    @property
    def teraflops(self) -> float | None:
        return None if self.seconds is None else self.work.flops / self.seconds / 1e12

    @property
    def of_copy(self) -> float | None:
        """Fraction of the copy bandwidth."""
        if self.seconds is None:
            return None
        return self.work.num_bytes / self.seconds / self.copy_bandwidth


def every_case(models: Iterable[ModelShape], load: Load) -> Iterator[Case]:
    for model in models:
        yield from products.product_cases(model, load)
        yield from pages.page_cases(model, load)
        yield from indexing.indexing_cases(model, load)


def measure(case: Case, source: Source, clock: Clock, copy_bandwidth: float) -> Figures:
    """Time an op if it gives what its reference gives."""
    trial = case.build(source)
    error = trial.error()
    return Figures(
        op=case.op,
        model=case.model,
        shape=case.shape,
        error=error,
        tolerance=trial.tolerance,
        work=trial.work,
        seconds=clock.seconds(trial.run) if error <= trial.tolerance else None,
        copy_bandwidth=copy_bandwidth,
        goal=case.goal,
    )


def layout(figures: Sequence[Figures]) -> str:
    return table(HEADER, [_row(one) for one in figures])


def goals(figures: Sequence[Figures], models: Iterable[ModelShape]) -> list[str]:
    """Return what compares ops with each other, one line each."""
    seconds = {
        (one.model, one.op, one.shape): one.seconds for one in figures if one.seconds is not None
    }
    lines: list[str] = []
    for model in models:
        lines += _goals_of(model, seconds)
    return lines


def _goals_of(model: ModelShape, seconds: dict[tuple[str, str, str], float]) -> list[str]:
    lines: list[str] = []
    int4 = seconds.get((model.name, products.INT4, "1 rows"))
    fp8 = seconds.get((model.name, products.FP8_EXPERTS, "1 rows"))
    if int4 and fp8:
        lines.append(
            f"{model.name}, one row: INT4 experts {number(fp8 / int4)} times as fast as FP8 "
            f"(goal {INT4_OVER_FP8_GOAL})"
        )
    shapes = [
        shape for name, op, shape in seconds if (name, op) == (model.name, f"{pages.DECODE} fp8")
    ]
    for shape in shapes:
        decode = seconds[model.name, f"{pages.DECODE} fp8", shape]
        wide = seconds.get((model.name, f"{pages.DECODE} bf16", shape))
        if wide:
            lines.append(
                f"{model.name}, {shape}: FP8 decode {number(wide / decode)} times as fast as BF16 "
                "(goal 1)"
            )
        check = seconds.get((model.name, pages.CHECK, shape))
        rows = f"{shape.split()[0]} rows"
        experts = seconds.get((model.name, products.INT4, rows))
        if check and experts:
            # what else a step does makes the share smaller
            share = 2 * check / (model.num_layers * (decode + experts))
            lines.append(
                f"{model.name}, {shape}: both page checks are at most {share:.2%} of a step's "
                f"attention and experts (goal {CHECK_SHARE_GOAL:.1%})"
            )
    return lines


def _row(figures: Figures) -> tuple[str, ...]:
    def figure(value: float | None, scale: float = 1.0) -> str:
        return "-" if value is None else number(value * scale)

    return (
        figures.op,
        figures.model,
        figures.shape,
        figure(figures.seconds, 1e6),
        figure(figures.gigabytes_per_s),
        figure(figures.teraflops) if figures.work.flops else "-",
        figure(figures.of_copy),
        figure(figures.goal),
        f"{figures.error:.1e}" + ("" if figures.seconds is not None else " WRONG"),
    )
