"""What workers cost: `python -m tenantry_recipes.bench.workers [--workerd PATH]`.

The client is on the same machine. CPU time is the servers', of a request or an event, isolates included. Rounds of all contenders take turns, and figures are medians over
rounds with the least and the most around them.

| contender | is |
|---|---|
| edge alone | the edge, with an engine that answers by itself what the workers would |
| edge and isolate | the edge, an engine, and confined isolates |
| workerd | Cloudflare's runtime with the same workers in JavaScript, each in a process of its own |

| stream | is |
|---|---|
| piped, piped-long | of a model; the worker returns it as it got it, and it passes the isolate by |
| made | of events that the worker makes |
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.text import TextReceiveStream

from tenantry_recipes.bench.machine import describe_machine
from tenantry_recipes.bench.spread import Spread, ratios
from tenantry_recipes.bench.table import megabytes, number, spread, table
from tenantry_runtime.workers.sandbox import Level

from . import cold, idle
from .client import Burst, Target, burst
from .subjects import ACCOUNT, CODE, HELLO, LONG, PIPED, STREAMS
from .workerd import SCRIPTS, serving

ALONE, ISOLATE, WORKERD = "edge alone", "edge and isolate", "workerd"
CONNECTIONS = (1, 32)
NUM_STREAMS = 32
"""At once."""
PACKAGES = ("granian", "msgspec", "anyio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is measured."""

    num_rounds: int
    seconds: float
    """Of each burst."""
    num_starts: int
    num_isolates: int
    """That are idle; 0: that part is left out."""
    workerd: Path | None
    floor: Level


@dataclass(slots=True)
class Rounds:
    """Bursts of one contender with one kind of request, in the order of rounds."""

    bursts: list[Burst] = field(default_factory=list)

    def per_s(self, each: int = 1) -> Spread:
        return Spread.of(each * burst.per_s for burst in self.bursts)

    def processor_us(self) -> Spread:
        return Spread.of(burst.processor_us for burst in self.bursts)

    def quantile_ms(self, part: float) -> Spread:
        return Spread.of(burst.quantile_ms(part) for burst in self.bursts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--workerd", type=Path, help="program of workerd, to measure it too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--isolates", type=int, default=1000)
    parser.add_argument("--floor", type=Level, choices=list(Level), default=Level.FULL)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    options = Options(
        num_rounds=given.rounds,
        seconds=given.seconds,
        num_starts=given.starts,
        num_isolates=given.isolates,
        workerd=given.workerd,
        floor=given.floor,
    )
    report = anyio.run(measure, options)
    if given.json:
        print(json.dumps(report.figures))
        return
    print(describe_machine(1, PACKAGES))
    print(report.text)


@dataclass(frozen=True, slots=True)
class Report:
    text: str
    # Any: numbers and lists of them, by name
    figures: dict[str, Any]


async def measure(options: Options) -> Report:
    """Measure everything, one part after the other."""
    starts = await cold.measure(options.num_starts, floor=options.floor, workerd=options.workerd)
    rounds = await _rounds(options)
    many = None
    if options.num_isolates:
        many = await idle.measure(options.num_isolates, floor=options.floor)
    parts = [_report_starts(starts), _report_requests(rounds), _report_streams(rounds)]
    parts += [_report_goals(rounds)] + ([_report_idle(many)] if many is not None else [])
    figures = {
        f"{contender}, {what}": {
            "per_s": each.per_s(),
            "processor_us": each.processor_us(),
            "p50_ms": each.quantile_ms(0.5),
            "p99_ms": each.quantile_ms(0.99),
        }
        for (contender, what), each in rounds.items()
    }
    return Report("\n\n".join(parts), figures)


async def _rounds(options: Options) -> dict[tuple[str, str], Rounds]:
    async with AsyncExitStack() as stack:
        targets: dict[tuple[str, str], tuple[Target, int]] = {}
        for contender, kind in ((ALONE, "alone"), (ISOLATE, "isolates")):
            port, pid = await stack.enter_async_context(_edge(kind, options.floor))
            for worker in CODE:
                target = Target(port, f"{worker}.{ACCOUNT}.localhost:{port}", pid)
                for connections in CONNECTIONS if worker == HELLO else (NUM_STREAMS,):
                    targets[contender, f"{worker} {connections}"] = target, connections
        if options.workerd is not None:
            for worker, script in SCRIPTS.items():
                target = await stack.enter_async_context(serving(options.workerd, script))
                for connections in CONNECTIONS if worker == HELLO else (NUM_STREAMS,):
                    targets[WORKERD, f"{worker} {connections}"] = target, connections
        # in each round all contenders with one kind of request, then with the next
        order = sorted(targets, key=lambda key: key[1])
        measured = {key: Rounds() for key in order}
        for round_number in range(options.num_rounds + 1):
            for key in order:
                target, connections = targets[key]
                # once unmeasured: isolates start, code gets warm
                seconds = options.seconds if round_number else options.seconds / 4
                came = await burst(target, connections=connections, seconds=seconds)
                if round_number:
                    measured[key].bursts.append(came)
        return measured


@asynccontextmanager
async def _edge(kind: str, floor: Level) -> AsyncIterator[tuple[int, int]]:
    command = [sys.executable, "-m", "tenantry_recipes.bench.workers.server", kind, floor]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None and process.stdin is not None
        yield int(await TextReceiveStream(process.stdout).receive()), process.pid
        await process.stdin.aclose()
        await process.wait()


def _report_starts(starts: cold.Starts) -> str:
    kinds = {
        "by fork": starts.forked,
        "from the pool": starts.pooled,
        "warm, no HTTP": starts.warm,
        "workerd, a process": starts.workerd,
    }
    rows = [
        (name, number(statistics.median(values)), number(_p99(values)), str(len(values)))
        for name, values in kinds.items()
        if values
    ]
    return table(("to the first response", "p50 ms", "p99 ms", "starts"), rows)


def _report_requests(rounds: dict[tuple[str, str], Rounds]) -> str:
    rows = [
        (
            contender,
            what.partition(" ")[2],
            spread(each.per_s()),
            spread(each.quantile_ms(0.5)),
            spread(each.quantile_ms(0.99)),
            spread(each.processor_us()),
        )
        for (contender, what), each in rounds.items()
        if what.startswith(HELLO)
    ]
    return table(("requests", "connections", "requests/s", "p50 ms", "p99 ms", "CPU us"), rows)


def _report_streams(rounds: dict[tuple[str, str], Rounds]) -> str:
    rows = [
        (
            contender,
            worker,
            str(STREAMS[worker]),
            spread(each.per_s(STREAMS[worker])),
            spread(each.processor_us().scaled(1 / STREAMS[worker])),
        )
        for (contender, what), each in rounds.items()
        if (worker := what.partition(" ")[0]) != HELLO
    ]
    return table((f"streams, {NUM_STREAMS} at once", "kind", "events", "events/s", "CPU us"), rows)


@dataclass(frozen=True, slots=True)
class Compared:
    """Pairs of one round, which were measured next to each other."""

    added_ms: Spread
    """By an isolate, to the median of one connection."""


def compared(rounds: Mapping[tuple[str, str], Rounds]) -> Compared:
    """Compare the edge with isolates and the edge alone."""
    alone, isolate = rounds[ALONE, f"{HELLO} 1"].bursts, rounds[ISOLATE, f"{HELLO} 1"].bursts
    return Compared(
        added_ms=Spread.of(
            with_isolate.quantile_ms(0.5) - without.quantile_ms(0.5)
            for with_isolate, without in zip(isolate, alone, strict=True)
        )
    )


def _report_goals(rounds: Mapping[tuple[str, str], Rounds]) -> str:
    def over(what: str, theirs: str) -> str:
        mine, others = rounds[ISOLATE, what].bursts, rounds[theirs, what].bursts
        return spread(ratios([each.per_s for each in mine], [each.per_s for each in others]))

    added = spread(compared(rounds).added_ms)
    rows = [("an isolate adds to p50, 1 connection", f"{added} ms")]
    for worker in (PIPED, LONG):
        name = f"piped streams of {STREAMS[worker]} over the edge alone"
        rows.append((name, over(f"{worker} {NUM_STREAMS}", ALONE)))
    if (WORKERD, f"{HELLO} 1") in rounds:
        for connections in CONNECTIONS:
            name = f"requests over workerd's, {connections} connections"
            rows.append((name, over(f"{HELLO} {connections}", WORKERD)))
    return table(("compared, round by round", "is"), rows)


def _report_idle(many: idle.Idle) -> str:
    rows = [
        ("all of them started and answered in", f"{number(many.start_s)} s"),
        ("private to each, median", megabytes(statistics.median(many.private_bytes))),
        ("private to each, most", megabytes(max(many.private_bytes))),
        ("PSS of each, median", megabytes(statistics.median(many.pss_bytes))),
        ("less memory available, for each", megabytes(many.machine_bytes)),
        (f"CPU of all in {idle.QUIET_S:g} s", f"{number(many.cpu_ms)} ms"),
        ("one more request to each, in turn", f"{number(many.ask_all_s)} s"),
    ]
    return table((f"{many.num_isolates} idle isolates", "is"), rows)


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[min(int(0.99 * len(values)), len(values) - 1)]


if __name__ == "__main__":
    main()
