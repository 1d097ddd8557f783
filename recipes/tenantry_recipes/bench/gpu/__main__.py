"""Check and time the GPU kernels: `python -m tenantry_recipes.bench.gpu`.

Each op first gives what its reference gives on fresh random inputs; only then is it timed, at the
shapes that one of eight H200s sees of Kimi-K2.6 and GLM-5.2. `of copy` is the least bytes that the
op must move, over its time, as a fraction of what a large copy reaches on the same card.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
from dataclasses import asdict

import torch

from tenantry_recipes.bench.errors import BenchmarkError

from .case import Source
from .clock import Clock, GpuClock
from .errors import NoGpu, WrongResults
from .report import Figures, every_case, goals, layout, measure
from .shapes import LOAD, MODELS, Load, ModelShape


def main() -> None:
    arguments = _parser().parse_args()
    try:
        if not torch.cuda.is_available():
            raise NoGpu
        device = torch.device("cuda")
        properties = torch.cuda.get_device_properties(device)
        print(
            f"{properties.name}, torch {torch.__version__}, seed {arguments.seed}",
            flush=True,
        )
        run(
            device,
            GpuClock(device),
            seed=arguments.seed,
            wanted=arguments.ops,
            is_json=arguments.json,
        )
    except BenchmarkError as error:
        raise SystemExit(f"bench-gpu: {error}") from error


def run(
    device: torch.device,
    clock: Clock,
    *,
    seed: int,
    wanted: str = "",
    is_json: bool = False,
    models: tuple[ModelShape, ...] = MODELS,
    load: Load = LOAD,
) -> None:
    """Measure what matches, print it, and raise `WrongResults` if any result was."""
    source = Source(device, seed)
    bandwidth = clock.copy_bandwidth()
    figures: list[Figures] = []
    for case in every_case(models, load):
        if re.search(wanted, str(case)):
            figures.append(measure(case, source, clock, bandwidth))
            if not is_json:
                print(f"{case}: {layout(figures[-1:]).splitlines()[-1]}", flush=True)
    if is_json:
        print(json.dumps({"seed": seed, "figures": [asdict(one) for one in figures]}, indent=2))
    else:
        print(f"\ncopy: {bandwidth / 1e9:.0f} GB/s read and written\n\n{layout(figures)}\n")
        print("\n".join(goals(figures, models)))
    wrong = tuple(f"{one.op}, {one.model}, {one.shape}" for one in figures if one.seconds is None)
    if wrong:
        raise WrongResults(wrong)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seed", type=int, default=secrets.randbits(32), help="of the inputs; fresh by default"
    )
    parser.add_argument(
        "--ops", default="", metavar="REGEX", help="only what matches 'op, model, shape'"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


if __name__ == "__main__":
    main()
