"""How long decode steps take while other nodes push pages into the node.

A step's time is from the end of the one before to its own, and all that the step loop does between
them: also what it does with the pages that have come.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import anyio
import msgspec
import torch

from tenantry_kernels.page_digest import page_digests
from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.serving import node_address, start_node
from tenantry_recipes.bench.spread import Spread, ratios
from tenantry_recipes.bench.table import number, spread, table
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.tags import NoTags
from tenantry_runtime.cache.wire_pages import WirePages
from tenantry_runtime.models.loader import load_config
from tenantry_runtime.supervisor.state import claim

from .layouts import Subject
from .meeting import Meeting
from .pace import Pace
from .page_source import PageSource, ZeroPage, a_page_source
from .pusher import Order, pushing
from .timed_node import TimedConfig, read_times
from .turns import in_turns

NODE = "decode"
NUM_PROMPT = 256
"""Tokens of each sequence of the batch."""
CACHE: CacheName = "bf16"
MIN_STEPS = 20
"""In which all sequences of a batch take part; they begin and end one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of one batch, while pages came at one rate."""

    reached_per_s: float
    """Bytes."""
    step_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.step_s)

    @property
    def p90_s(self) -> float:
        return statistics.quantiles(self.step_s, n=10)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rate."""

    asked_per_s: float
    """Bytes."""
    reached_per_s: Spread
    median_s: Spread
    p90_s: Spread
    median_ratio: Spread | None
    """To the same round's steps without pushes."""
    p90_ratio: Spread | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What decodes."""

    num_sequences: int
    num_tokens: int
    """Of each."""


def measure(
    subject: Subject, batch: Batch, *, megabytes_per_s: Sequence[int], rounds: int
) -> tuple[Row, ...]:
    """Let one node decode batches of the same kind, at each rate and at none in turn."""
    rates = (0.0, *(1e6 * rate for rate in megabytes_per_s if rate))

    async def all_rounds() -> list[dict[float, Steps]]:
        async with _a_rig(subject, batch) as rig:
            # connects and compiles
            await rig.steps(rates[-1])
            return [
                {rate: await rig.steps(rate) for rate in in_turns(rates, turn)}
                for turn in range(rounds)
            ]

    return rows_of(anyio.run(all_rounds))


def rows_of(in_rounds: Sequence[Mapping[float, Steps]]) -> tuple[Row, ...]:
    """Make one row per rate; each round has all of them, and none."""
    undisturbed = [steps[0.0] for steps in in_rounds]
    rows: list[Row] = []
    for rate in sorted(in_rounds[0]):
        pushed = [steps[rate] for steps in in_rounds]
        medians = [steps.median_s for steps in pushed]
        p90s = [steps.p90_s for steps in pushed]
        rows.append(
            Row(
                asked_per_s=rate,
                reached_per_s=Spread.of(steps.reached_per_s for steps in pushed),
                median_s=Spread.of(medians),
                p90_s=Spread.of(p90s),
                median_ratio=ratios(medians, [steps.median_s for steps in undisturbed])
                if rate
                else None,
                p90_ratio=ratios(p90s, [steps.p90_s for steps in undisturbed]) if rate else None,
            )
        )
    return tuple(rows)


def layout(rows: Sequence[Row]) -> str:
    """Write the figures for people."""
    header = ("pushes, MB/s", "reached", "median step ms", "ratio", "p90 step ms", "ratio")
    return table(
        header,
        [
            (
                f"{row.asked_per_s / 1e6:.0f}",
                number(row.reached_per_s.median / 1e6),
                spread(row.median_s.scaled(1e3)),
                "" if row.median_ratio is None else spread(row.median_ratio),
                spread(row.p90_s.scaled(1e3)),
                "" if row.p90_ratio is None else spread(row.p90_ratio),
            )
            for row in rows
        ],
    )


def zero_page(directory: Path, cache: CacheName) -> ZeroPage:
    """Describe a page of zeros of a checkpoint's decode member."""
    pages = PagedCache.allocate(
        load_config(directory), num_pages=1, cache_format=SERVED_FORMATS[cache]
    )
    num_bytes = WirePages(pages, NoTags()).page_bytes
    (digest,) = page_digests(torch.zeros(1, num_bytes, dtype=torch.uint8)).tolist()
    return ZeroPage(num_bytes=num_bytes, digest=digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rig:
    """A decode node, and who hands the batch's sequences over to it."""

    address: str
    page: ZeroPage
    source: PageSource
    batch: Batch
    times: Path
    seeds: Iterator[int]

    async def steps(self, bytes_per_s: float) -> Steps:
        """Decode one batch while pages come at a rate."""
        if not bytes_per_s:
            return Steps(reached_per_s=0.0, step_s=await self._decode())
        order = Order(
            address=self.address, bytes_per_s=bytes_per_s, page=self.page, seed=next(self.seeds)
        )
        async with pushing(order) as pusher:
            step_s = await self._decode()
            pushed = await pusher.finish()
        return Steps(reached_per_s=pushed.bytes_per_s, step_s=step_s)

    async def _decode(self) -> tuple[float, ...]:
        """Return the time of each step that all sequences of a batch took part in."""
        num_before = len(read_times(self.times))
        meeting = Meeting(self.batch.num_sequences)
        async with anyio.create_task_group() as sequences:
            for _ in range(self.batch.num_sequences):
                sequences.start_soon(self._run, meeting)
        ends_s = read_times(self.times)[num_before:]
        if len(ends_s) < MIN_STEPS:
            raise BenchmarkError(f"the sequences of a batch had {len(ends_s)} steps in common")
        return tuple(later - earlier for earlier, later in pairwise(ends_s))

    async def _run(self, meeting: Meeting) -> None:
        # together, lest the first be done before the last begins
        async with self.source.handed_over(
            NUM_PROMPT, self.batch.num_tokens, pace=Pace(), before_end=meeting.attend
        ) as sequence:
            async for _ in sequence:
                pass


@asynccontextmanager
async def _a_rig(subject: Subject, batch: Batch) -> AsyncIterator[_Rig]:
    page = zero_page(subject.directory, CACHE)
    with (
        tempfile.TemporaryDirectory(prefix="tenantry-bench-") as folder,
        claim(Path(folder), (NODE,)) as state,
    ):
        times = state.run / "times"
        config = TimedConfig(
            engine=msgspec.Raw(msgspec.json.encode(subject.decode_node(CACHE))),
            batch=batch.num_sequences,
            times=str(times),
        )
        address = node_address(state, NODE)
        async with (
            start_node(state, NODE, config, module="tenantry_recipes.bench.pools.timed_node"),
            a_page_source(address, page, seed=0) as source,
        ):
            yield _Rig(
                address=address,
                page=page,
                source=source,
                batch=batch,
                times=times,
                seeds=count(1),
            )
