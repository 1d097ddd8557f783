"""How the costs of tenancy are measured: rounds of all contenders take turns, many requests at a time."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import anyio

from tenantry_recipes.bench.machine import describe_machine

ContenderT = TypeVar("ContenderT")
RoundT = TypeVar("RoundT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is measured."""

    store: str | None
    """URL of a PostgreSQL database; None: SQLite alone."""
    num_requests: int
    """In each round of each contender."""
    num_rounds: int
    concurrency: int

    @property
    def stores(self) -> dict[str, str | None]:
        """Names of the databases to measure, and their URLs."""
        postgresql = {} if self.store is None else {"PostgreSQL": self.store}
        return {"SQLite": None, **postgresql}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Of one round."""

    requests_per_s: float
    processor_us: float
    """User and system time of the whole process per request, threads included."""


# Any: dataclasses, each benchmark's own
def run(
    description: str | None,
    arguments: Sequence[str] | None,
    measure: Callable[[Options], Awaitable[Sequence[Any]]],
    report: Callable[[Sequence[Any]], str],
    *,
    num_requests: int,
    packages: tuple[str, ...],
    asked: Callable[[Options], str],
) -> None:
    """Read a benchmark's command line, measure, and print: JSON, or a report below what it was measured on.

    `num_requests` is the default, and `asked` says in words what was measured.
    """
    given = _parser(description, num_requests=num_requests).parse_args(arguments)
    options = Options(
        store=given.store,
        num_requests=given.requests,
        num_rounds=given.rounds,
        concurrency=given.concurrency,
    )
    figures = anyio.run(measure, options)
    if given.json:
        print(json.dumps([asdict(each) for each in figures]))
        return
    print(describe_machine(1, packages))
    print(f"{asked(options)}\n")
    print(report(figures))


def _parser(description: str | None, *, num_requests: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--store", help="URL of a PostgreSQL database to measure too")
    parser.add_argument("--requests", type=int, default=num_requests)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    return parser


async def in_turns(
    contenders: Mapping[str, ContenderT],
    options: Options,
    measure: Callable[[ContenderT], Awaitable[RoundT]],
) -> dict[str, list[RoundT]]:
    """Return each contender's rounds, after one that is not counted: statements are compiled in it."""
    rounds: dict[str, list[RoundT]] = {name: [] for name in contenders}
    for number in range(options.num_rounds + 1):
        for name, contender in contenders.items():
            measured = await measure(contender)
            if number:
                rounds[name].append(measured)
    return rounds


async def paced(options: Options, request: Callable[[int], Awaitable[object]]) -> Pace:
    """Make a round's requests, each with a number of its own, so many at a time."""
    left = options.num_requests

    async def client() -> None:
        nonlocal left
        while left:
            left -= 1
            await request(left)

    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(options.concurrency):
            tasks.start_soon(client)
    wall_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    return Pace(
        requests_per_s=options.num_requests / wall_s,
        processor_us=1e6 * cpu_s / options.num_requests,
    )


async def alone(options: Options, request: Callable[[int], Awaitable[float]]) -> float:
    """Return what a request says that it took, in microseconds, where there is no other."""
    num_alone = min(200, options.num_requests)
    return 1e6 * sum([await request(number) for number in range(num_alone)]) / num_alone
