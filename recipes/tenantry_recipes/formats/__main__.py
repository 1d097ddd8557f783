"""Compare formats by right answers: `workerctl eval formats`, or `python -m tenantry_recipes.formats`.

The same held-out items are judged under both formats of a pair, greedily: an FP8 cache against BF16
on both nano models, INT4 experts against FP8 on GLM. Sixteen items or more share a context, which is
read once. Two damaged formats are judged as well, at the most streams, which must come out worse. Prints
Markdown. Exits with 1 unless every loss is shown to be below a point and all damage is noticed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from tenantry_recipes.nano.models import NANO_MODELS
from tenantry_runtime.errors import TenantryError

from .items import JUDGED, LENGTHS
from .judging import Evaluation, EvaluationPlan
from .progress import EvaluationProgress
from .report import report_of
from .results import Results

T = TypeVar("T")

DEFAULT_RESULTS = Path("eval-formats.jsonl")
DEFAULT_ITEMS = 2000
DEFAULT_DIVERGENCES = 64
"""Two or four contexts of each cell."""
DEFAULT_STREAMS = (1, 32)
MAX_STREAMS = 256
"""Whose pages take 4 GB of a nano model."""
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    plan = EvaluationPlan(
        models=_unique(options.models),
        tasks=_unique(options.tasks),
        lengths=_unique(options.lengths),
        streams=_unique(options.streams),
        num_items=options.items,
        num_divergences=min(options.kl_items, options.items),
        seed=options.seed,
        threads=options.threads,
        has_controls=options.controls,
    )
    if not plan.cells(plan.models[0], plan.streams[0]):
        parser.error(f"--tasks {' '.join(plan.tasks)} are judged at --lengths 512 and 1024 only")
    try:
        results = Results(options.results)
        with (
            results.held(),
            tempfile.TemporaryDirectory() as work,
            EvaluationProgress() as progress,
        ):
            Evaluation(plan=plan, results=results, heard=progress, work=Path(work)).run()
    except KeyboardInterrupt:
        print(
            f"Interrupted: what was judged is in {options.results}; run the same command to go on.",
            file=sys.stderr,
        )
        return INTERRUPTED
    except TenantryError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    report = report_of(plan, results)
    print(report.json() if options.json else report.markdown())
    return 0 if report.is_passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="workerctl eval formats", description=__doc__)
    parser.add_argument(
        "--items", type=_count, default=DEFAULT_ITEMS, help="per task and length (%(default)s)"
    )
    parser.add_argument(
        "--kl-items",
        type=_count,
        default=DEFAULT_DIVERGENCES,
        help="of those, items whose next-token distributions are compared (%(default)s)",
    )
    parser.add_argument("--models", nargs="+", choices=NANO_MODELS, default=tuple(NANO_MODELS))
    parser.add_argument("--tasks", nargs="+", choices=tuple(JUDGED), default=tuple(JUDGED))
    parser.add_argument(
        "--lengths",
        nargs="+",
        type=int,
        choices=LENGTHS,
        default=LENGTHS,
        help="tokens of a prompt",
    )
    parser.add_argument(
        "--streams",
        nargs="+",
        type=_streams,
        default=DEFAULT_STREAMS,
        help="sequences that run at a time (1 32)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the items")
    parser.add_argument(
        "--threads", type=_count, default=1, help="of torch's operators (%(default)s)"
    )
    parser.add_argument(
        "--no-controls", dest="controls", action="store_false", help="leave out damaged formats"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=DEFAULT_RESULTS,
        help="file that keeps what was judged; what is in it is not judged again (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def _streams(text: str) -> int:
    number = _count(text)
    if number > MAX_STREAMS:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_STREAMS}, not {number}")
    return number


def _unique(values: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))


if __name__ == "__main__":
    sys.exit(main())
