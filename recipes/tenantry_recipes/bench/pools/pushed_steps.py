"""How long decode steps take while other nodes push pages into the node.

A step's time is from the end of the one before to its own, and all that the step loop does between
them: also what it does with the pages that have come. Three things make it longer:

| what | is told by |
|---|---|
| the step loop's own work on pages | the processor time of its thread, step by step |
| that others are on its processors: the node's front and whoever pushes | a control: the same batch beside processes that take as much time of them, and have nothing to do with the node |
| what these do to each other's caches, and to who runs when | the rest |

On machines of their own the pusher takes nothing from a node, and a front has a core.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path

import anyio
import msgspec
import torch

from tenantry_kernels.page_digest import page_digests
from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.memory import processor_s
from tenantry_recipes.bench.serving import node_address, start_node
from tenantry_recipes.bench.spread import Spread, ratios
from tenantry_recipes.bench.table import number, spread, table
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.tags import NoTags
from tenantry_runtime.cache.wire_pages import WirePages
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models.loader import load_config
from tenantry_runtime.supervisor.state import claim

from . import burner, pusher
from .burner import Burn, Burnt
from .helper_process import helper
from .layouts import Subject
from .pace import Pace
from .page_source import PageSource, ZeroPage, a_page_source
from .pusher import Order, Pushed
from .timed_node import TimedConfig, read_times
from .turns import in_turns

NODE = "decode"
NUM_PROMPT = 4 * PAGE_TOKENS
"""Tokens of each sequence of the batch: fewer than of those whose pages are pushed meanwhile."""
CACHE: CacheName = "bf16"
MIN_STEPS = 20
"""In which all sequences of a batch take part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of one batch, while pages came at one rate."""

    step_s: tuple[float, ...]
    own_s: tuple[float, ...]
    """Processor time of the step loop in each."""
    reached_per_s: float = 0.0
    """Bytes."""
    control: Steps | None = None
    """Without pushes, beside as much other work as front and pusher made of them."""

    @property
    def median_s(self) -> float:
        return statistics.median(self.step_s)

    @property
    def median_own_s(self) -> float:
        return statistics.median(self.own_s)

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
    own_ratio: Spread | None
    """Of the step loop's own processor time."""
    control_ratio: Spread | None
    """Of a step beside as much other work, and no pushes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What decodes."""

    num_sequences: int
    num_tokens: int
    """Of each."""


def measure(
    subject: Subject,
    batch: Batch,
    *,
    megabytes_per_s: Sequence[int],
    rounds: int,
    lends: bool = True,
) -> tuple[Row, ...]:
    """Let one node decode batches of the same kind, at each rate and at none in turn."""
    rates = (0.0, *(1e6 * rate for rate in megabytes_per_s if rate))

    async def all_rounds() -> list[dict[float, Steps]]:
        async with _a_rig(subject, batch, lends=lends) as rig:
            # connects and compiles
            await rig.pushed(rates[-1], front_s=0.0)
            front_s = await rig.front_s()
            return [
                {
                    rate: await (rig.pushed(rate, front_s=front_s) if rate else rig.plain())
                    for rate in in_turns(rates, turn)
                }
                for turn in range(rounds)
            ]

    return rows_of(anyio.run(all_rounds))


def rows_of(in_rounds: Sequence[Mapping[float, Steps]]) -> tuple[Row, ...]:
    """Make one row per rate; each round has all of them, and none."""
    rows: list[Row] = []
    for rate in sorted(in_rounds[0]):
        steps = [of_round[rate] for of_round in in_rounds]
        rows.append(
            Row(
                asked_per_s=rate,
                reached_per_s=Spread.of(each.reached_per_s for each in steps),
                median_s=Spread.of(each.median_s for each in steps),
                p90_s=Spread.of(each.p90_s for each in steps),
                median_ratio=_ratio(in_rounds, rate, lambda each: each.median_s),
                p90_ratio=_ratio(in_rounds, rate, lambda each: each.p90_s),
                own_ratio=_ratio(in_rounds, rate, lambda each: each.median_own_s),
                control_ratio=_ratio(in_rounds, rate, lambda each: (each.control or each).median_s),
            )
        )
    return tuple(rows)


def layout(rows: Sequence[Row]) -> str:
    """Write the figures for people."""
    header = (
        "pushes, MB/s",
        "reached",
        "median step ms",
        "ratio",
        "of its own processor time",
        "beside as much other work",
        "p90 step ms",
        "ratio",
    )
    return table(
        header,
        [
            (
                f"{row.asked_per_s / 1e6:.0f}",
                number(row.reached_per_s.median / 1e6),
                spread(row.median_s.scaled(1e3)),
                *(
                    "" if ratio is None else spread(ratio)
                    for ratio in (row.median_ratio, row.own_ratio, row.control_ratio)
                ),
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
    front: int
    """Its process."""
    seeds: Iterator[int]
    lends: bool
    """Whether the pusher's pages are read where they lie."""

    async def plain(self) -> Steps:
        """Decode one batch."""
        return await self._decode()

    async def front_s(self) -> float:
        """Return the processor time that the front needs of one batch."""
        before_s = processor_s(self.front)
        await self._decode()
        return processor_s(self.front) - before_s

    async def pushed(self, bytes_per_s: float, *, front_s: float) -> Steps:
        """Decode one batch while pages come at a rate, then another beside as much other work."""
        order = Order(
            address=self.address,
            bytes_per_s=bytes_per_s,
            page=self.page,
            seed=next(self.seeds),
            lends=self.lends,
        )
        async with helper(pusher.MODULE, order) as pushing:
            before_s = [processor_s(pid) for pid in (self.front, pushing.pid)]
            started_s = anyio.current_time()
            steps = await self._decode()
            took_s = anyio.current_time() - started_s
            front, pushes = (
                processor_s(pid) - before
                for pid, before in zip((self.front, pushing.pid), before_s, strict=True)
            )
            pushed = await pushing.finish(Pushed)
        shares = (max(0.0, front - front_s) / took_s, pushes / took_s)
        control = await self._beside(shares)
        return replace(steps, reached_per_s=pushed.bytes_per_s, control=control)

    async def _beside(self, shares: Sequence[float]) -> Steps:
        """Decode one batch beside processes that take these shares of a core each."""
        async with AsyncExitStack() as stack:
            burners = [
                await stack.enter_async_context(
                    helper(burner.MODULE, Burn(share=share, page_bytes=self.page.num_bytes))
                )
                for share in shares
            ]
            steps = await self._decode()
            for each in burners:
                await each.finish(Burnt)
        return steps

    async def _decode(self) -> Steps:
        """Return the steps that all sequences of a batch took part in."""
        num_before = len(read_times(self.times))
        async with anyio.create_task_group() as sequences:
            for _ in range(self.batch.num_sequences):
                sequences.start_soon(self._run)
        ends = read_times(self.times)[num_before:]
        if len(ends) < MIN_STEPS:
            raise BenchmarkError(f"the sequences of a batch had {len(ends)} steps in common")
        return Steps(
            step_s=tuple(later.at_s - earlier.at_s for earlier, later in pairwise(ends)),
            own_s=tuple(later.own_s - earlier.own_s for earlier, later in pairwise(ends)),
        )

    async def _run(self) -> None:
        num_tokens = self.batch.num_tokens
        async with self.source.handed_over(NUM_PROMPT, num_tokens, pace=Pace()) as sequence:
            async for _ in sequence:
                pass


@asynccontextmanager
async def _a_rig(subject: Subject, batch: Batch, *, lends: bool) -> AsyncIterator[_Rig]:
    page = zero_page(subject.directory, CACHE)
    with (
        tempfile.TemporaryDirectory(prefix="tenantry-bench-") as folder,
        claim(Path(folder), (NODE,)) as state,
    ):
        times = state.run / "times"
        config = TimedConfig(
            engine=msgspec.Raw(msgspec.json.encode(subject.decode_node(CACHE))),
            batch=batch.num_sequences,
            batch_pages=NUM_PROMPT // PAGE_TOKENS,
            times=str(times),
        )
        address = node_address(state, NODE)
        async with (
            start_node(
                state, NODE, config, module="tenantry_recipes.bench.pools.timed_node"
            ) as node,
            a_page_source(address, page, seed=0) as source,
        ):
            yield _Rig(
                address=address,
                page=page,
                source=source,
                batch=batch,
                times=times,
                front=node.process.pid,
                seeds=count(1),
                lends=lends,
            )


def _ratio(
    in_rounds: Sequence[Mapping[float, Steps]], rate: float, figure: Callable[[Steps], float]
) -> Spread | None:
    """Compare with the same round's steps without pushes; None for these."""
    if not rate:
        return None
    return ratios(
        [figure(of_round[rate]) for of_round in in_rounds],
        [figure(of_round[0.0]) for of_round in in_rounds],
    )
