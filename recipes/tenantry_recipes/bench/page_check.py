"""What the check of pages costs in a decode step: `python -m tenantry_recipes.bench.page_check`.

| figure | what |
|---|---|
| check | check, landing and confirmation of one step, alone |
| tables | what a node without the check does in their place: page table and write slots |
| step | the model's step and its logits between check and confirmation, without sampling |
| share | check over step |
| pairs | steps with the check next to steps without it, in turns: the median difference over the step, and the bootstrap's upper bound of it, one-sided at 95% |

Every sequence has `--length` tokens in pages of its own. Their content is zero: no loop over pages
looks at it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from tenantry_recipes.nano.models import NANO_MODELS, checkpoint_directory
from tenantry_runtime.cache.tags import NoTags
from tenantry_runtime.models import load_model

from .decode_rig import Rig
from .machine import describe_machine
from .options import concurrencies
from .table import number, table

LENGTH = 2048
NUM_ALONE = 300
"""Repetitions of the check by itself."""
NUM_WARM_UP = 5
NUM_RESAMPLES = 2000
GOAL = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model at one concurrency. Times are medians."""

    model: str
    concurrency: int
    check_s: float
    tables_s: float
    step_s: float
    pairs: int
    pairs_median: float
    pairs_upper: float

    @property
    def share(self) -> float:
        return self.check_s / self.step_s


@torch.inference_mode()
def measure(name: str, rig: Rig, concurrency: int, pairs: int) -> Row:
    """Measure one model at one concurrency."""
    without = NoTags()
    for tracker in (rig.tags, without):
        for _ in range(NUM_WARM_UP):
            rig.timed(rig.step, tracker)
    check = [rig.timed(rig.check, rig.tags) for _ in range(NUM_ALONE)]
    tables = [rig.timed(rig.check, without) for _ in range(NUM_ALONE)]
    with_s: list[float] = []
    without_s: list[float] = []
    for pair in range(pairs):
        # whoever comes second finds warmer caches: each does as often
        for is_checked in (True, False) if pair % 2 else (False, True):
            tracker = rig.tags if is_checked else without
            (with_s if is_checked else without_s).append(rig.timed(rig.step, tracker))
    step_s = statistics.median(with_s)
    differences = [(a - b) / step_s for a, b in zip(with_s, without_s, strict=True)]
    return Row(
        model=name,
        concurrency=concurrency,
        check_s=statistics.median(check),
        tables_s=statistics.median(tables),
        step_s=step_s,
        pairs=pairs,
        pairs_median=statistics.median(differences),
        pairs_upper=upper_bound(differences),
    )


def upper_bound(values: Sequence[float], *, seed: int = 0) -> float:
    """Return the bootstrap's 95% upper bound of the median: other processes' turns make no mean."""
    rng = random.Random(seed)
    medians = sorted(
        statistics.median(rng.choices(values, k=len(values))) for _ in range(NUM_RESAMPLES)
    )
    return medians[int(0.95 * NUM_RESAMPLES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(NANO_MODELS), choices=NANO_MODELS)
    parser.add_argument("--concurrency", type=concurrencies, default=(1, 8, 32))
    parser.add_argument("--length", type=int, default=LENGTH)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--cache", choices=["bf16", "fp8"], default="bf16")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: list[Row] = []
    for name in options.models:
        decoder = load_model(checkpoint_directory(name), dtype=getattr(torch, options.dtype))
        for concurrency in options.concurrency:
            rig = Rig(decoder, cache=options.cache, length=options.length, concurrency=concurrency)
            rows.append(measure(name, rig, concurrency, options.pairs))
    if options.json:
        print(json.dumps([{**asdict(row), "share": row.share} for row in rows], indent=2))
        return
    print(describe_machine(options.threads, ("torch", "numpy")))
    print(f"goal: {GOAL:.1%} of a step")
    print(_table(rows))


def _table(rows: Sequence[Row]) -> str:
    header = ("model", "sequences", "check us", "tables us", "step ms", "share", "pairs", "pairs <")
    return table(
        header,
        [
            (
                row.model,
                str(row.concurrency),
                number(row.check_s * 1e6),
                number(row.tables_s * 1e6),
                number(row.step_s * 1e3),
                f"{row.share:.2%}",
                f"{row.pairs_median:+.2%}",
                f"{row.pairs_upper:+.2%}",
            )
            for row in rows
        ],
    )


if __name__ == "__main__":
    main()
