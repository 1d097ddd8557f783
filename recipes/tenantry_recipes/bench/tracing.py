"""What full tracing costs a node's streams: `python -m tenantry_recipes.bench.tracing`.

One node and, for each pair, two edges that have just started before it, one with every span sent to a
collector, one without. In a round as many clients as there are streams get one answer each, of as many
tokens. Rounds take turns: each edge has one to warm up, then two, the first and the last or those between.

| figure | what |
|---|---|
| pairs | the traced rounds' time over the untraced ones', less 1: the median, and the bootstrap's upper bound of it, one-sided at 95% |
| edge | processor time of each edge in a round, by the kernel's account: all of its threads, the exporter's too; medians |
| request | what a request's spans add, made and printed, by themselves (`tracing_alone.py`) |
| node | what a decode step of so many rows adds to the node: two sums |
| share | the added work of a round's requests and steps over an untraced round's time, which is that of a step over a step's |

Pairs are of the clock, and see whatever else the machine does, as in part the edges' times do; the share
is of what is measured alone. Two processes of one program differ, too, by where their memory lies and how
their threads meet: hence new ones for each pair. `--control` traces neither, and says how far pairs tell
nothing from nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import timeit
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import msgspec

from tenantry_recipes.nano.models import NANO_MODELS, checkpoint_directory
from tenantry_runtime.engine.tally import StepTally
from tenantry_runtime.supervisor.access import grant_access
from tenantry_runtime.supervisor.address import Address
from tenantry_runtime.supervisor.children import start_child
from tenantry_runtime.supervisor.readiness import until_ready
from tenantry_runtime.supervisor.state import claim
from tenantry_runtime.text import load_text

from .contender import BenchPrompt, EngineSettings
from .errors import BenchmarkError
from .load import closed_loop
from .machine import describe_machine
from .memory import family_of
from .node_config import MODEL, node_config
from .page_check import upper_bound
from .prompts import distinct_prompts
from .serving import LOOPBACK, Served, free_port, serving
from .table import number, table
from .tracing_alone import request_s

ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
GOAL = 0.02
SETTLE_S = 2.2
"""A batch of spans waits two seconds at most."""
START_TIMEOUT_S = 120.0
ROUNDS = 2
"""Of each edge, after one to warm up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model. Times are medians of rounds, in seconds."""

    model: str
    streams: int
    num_tokens: int
    pairs: int
    span_bytes: int
    """That the collector had of each request."""
    round_s: float
    """Without tracing."""
    pairs_median: float
    pairs_upper: float
    edge_s: float
    edge_traced_s: float
    request_s: float
    node_step_s: float

    @property
    def share(self) -> float:
        added_s = self.request_s * self.streams + self.node_step_s * self.num_tokens
        return added_s / self.round_s


@dataclass(frozen=True, slots=True)
class _Round:
    """Of one edge; in a pair, the mean of its rounds."""

    took_s: float
    edge_s: float


@dataclass(frozen=True, slots=True)
class _Pair:
    plain: _Round
    traced: _Round


@dataclass(frozen=True, slots=True)
class _Rig:
    """What all edges share."""

    node_state: Path
    text_directory: Path
    prompts: Sequence[BenchPrompt]
    num_tokens: int


class _Collector(ThreadingHTTPServer):
    """Takes what it is sent, and counts bytes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taken)
        self.num_bytes = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"


class _Taken(BaseHTTPRequestHandler):
    server: _Collector

    def do_POST(self) -> None:
        self.server.num_bytes += len(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


async def measure(
    name: str, *, streams: int, num_tokens: int, pairs: int, threads: int, is_control: bool
) -> Row:
    """Measure one model."""
    directory = checkpoint_directory(name)
    text = load_text(directory)
    settings = EngineSettings(
        directory=directory, dtype="bfloat16", threads=threads, max_batch=streams
    )
    # nothing ends an answer but its length
    engine = node_config(settings, vocab_limit=min(text.tokenizer.controls.names))
    prompts = distinct_prompts(text, streams)
    measured: list[_Pair] = []
    with tempfile.TemporaryDirectory(prefix="tenantry-") as folder, _collector() as collector:
        own = Path(folder) / "own"
        async with serving(engine, own, text_directory=directory):
            rig = _Rig(own, directory, prompts, num_tokens)
            endpoint = None if is_control else collector.endpoint
            for pair in range(pairs):
                state_dir = Path(folder) / str(pair)
                measured.append(await _pair(rig, state_dir, endpoint, traced_first=pair % 2 == 1))
        if not collector.num_bytes and not is_control:
            raise BenchmarkError("the traced edge has sent no spans")
    return _row(name, measured, streams, num_tokens, collector.num_bytes)


def _row(name: str, measured: list[_Pair], streams: int, num_tokens: int, num_bytes: int) -> Row:
    differences = [pair.traced.took_s / pair.plain.took_s - 1 for pair in measured]
    return Row(
        model=name,
        streams=streams,
        num_tokens=num_tokens,
        pairs=len(differences),
        span_bytes=num_bytes // (len(measured) * (1 + ROUNDS)) // streams,
        round_s=statistics.median(pair.plain.took_s for pair in measured),
        pairs_median=statistics.median(differences),
        pairs_upper=upper_bound(differences),
        edge_s=statistics.median(pair.plain.edge_s for pair in measured),
        edge_traced_s=statistics.median(pair.traced.edge_s for pair in measured),
        request_s=request_s(),
        node_step_s=_tally_s(streams),
    )


async def _pair(rig: _Rig, state_dir: Path, endpoint: str | None, *, traced_first: bool) -> _Pair:
    """Measure two new edges, one that sends its spans to `endpoint`."""
    rounds: dict[bool, list[_Round]] = {False: [], True: []}
    order = (True, False) if traced_first else (False, True)
    async with AsyncExitStack() as stack:
        edges = {
            is_traced: await stack.enter_async_context(
                _edge(rig, state_dir / str(is_traced), endpoint if is_traced else None)
            )
            for is_traced in order
        }
        for is_traced in order:
            await _round(edges[is_traced], rig)
        # whoever comes second finds the machine as the first has left it: each does as often
        for is_traced in (*order, *reversed(order)):
            rounds[is_traced].append(await _round(edges[is_traced], rig))
    return _Pair(plain=_mean(rounds[False]), traced=_mean(rounds[True]))


def _mean(rounds: Sequence[_Round]) -> _Round:
    return _Round(
        statistics.fmean(each.took_s for each in rounds),
        statistics.fmean(each.edge_s for each in rounds),
    )


async def _round(served: Served, rig: _Rig) -> _Round:
    edge = served.children[-1].process.pid
    requests = [served.request(prompt, rig.num_tokens) for prompt in rig.prompts]
    before_s = _processor_s(edge)
    load = await closed_loop(requests, len(requests))
    # what is left to be sent is sent in this time, not in the next round's
    await anyio.sleep(SETTLE_S)
    return _Round(load.total_s, _processor_s(edge) - before_s)


def _processor_s(pid: int) -> float:
    """Return the time that a process and those that it started have run, by the scheduler's account."""
    total_ns = 0
    for each in family_of(pid):
        for task in Path(f"/proc/{each}/task").iterdir():
            total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def _tally_s(num_rows: int) -> float:
    """Return what a decode step adds to a node."""
    tally, number = StepTally(), 100_000

    def step() -> None:
        tally.planned(num_rows)
        tally.ended(num_rows)

    return timeit.timeit(step, number=number) / number


@contextmanager
def _collector() -> Iterator[_Collector]:
    with _Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


@asynccontextmanager
async def _edge(rig: _Rig, own_state: Path, endpoint: str | None) -> AsyncIterator[Served]:
    """Run another edge before the node."""
    address = Address(LOOPBACK, free_port())
    with claim(own_state) as state:
        catalog = state.run / "catalog.json"
        entry = {"id": MODEL, "directory": str(rig.text_directory)}
        catalog.write_bytes(msgspec.json.encode({"models": [entry]}))
        config = state.run / "edge.json"
        edge = {
            "host": address.host,
            "port": address.port,
            "nodes": [f"unix:{rig.node_state / 'run' / 'node.sock'}"],
            "state_dir": str(state.path),
            "catalog": str(catalog),
        }
        config.write_bytes(msgspec.json.encode(edge))
        log = state.log("edge")
        if endpoint is not None:
            os.environ[ENDPOINT] = endpoint
        async with start_child("edge", "tenantry_runtime.edge", str(config), log=log) as child:
            os.environ.pop(ENDPOINT, None)
            credentials = await grant_access(
                state_dir=state.path,
                base_url=address.api_url,
                credentials_file=state.run / "credentials.json",
                curl_config=state.run / "curl.conf",
            )
            with anyio.fail_after(START_TIMEOUT_S):
                await until_ready(address)
            yield Served(
                address=address,
                model=MODEL,
                api_token=credentials.api_token,
                children=(child,),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(NANO_MODELS), choices=NANO_MODELS)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--control", action="store_true", help="trace neither edge")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [
        anyio.run(
            partial(
                measure,
                name,
                streams=options.streams,
                num_tokens=options.new_tokens,
                pairs=options.pairs,
                threads=options.threads,
                is_control=options.control,
            )
        )
        for name in options.models
    ]
    if options.json:
        print(json.dumps([{**asdict(row), "share": row.share} for row in rows], indent=2))
        return
    print(describe_machine(options.threads, ("torch", "opentelemetry-sdk")))
    print(f"goal: {GOAL:.0%}")
    print(_table(rows))


def _table(rows: Sequence[Row]) -> str:
    header = (
        *("model", "streams", "tokens", "bytes", "round s", "pairs", "median", "<"),
        *("edge ms", "traced ms", "request us", "node ns", "share"),
    )
    return table(
        header,
        [
            (
                row.model,
                str(row.streams),
                str(row.num_tokens),
                str(row.span_bytes),
                number(row.round_s),
                str(row.pairs),
                f"{row.pairs_median:+.2%}",
                f"{row.pairs_upper:+.2%}",
                number(row.edge_s * 1e3),
                number(row.edge_traced_s * 1e3),
                number(row.request_s * 1e6),
                number(row.node_step_s * 1e9),
                f"{row.share:.2%}",
            )
            for row in rows
        ],
    )


if __name__ == "__main__":
    main()
