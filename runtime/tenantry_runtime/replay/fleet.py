"""Sets up a simulation: so many members of such a size, and who chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tenantry_runtime.routing.router import LOAD_FLOOR_TOKENS, Router

from .costs import KIMI_DECODE_TOKENS, KIMI_PREFILL_TOKENS, Costs
from .endless import endless_hits
from .measures import Measured
from .member import DecodeMember, MemberSize, PrefillMember
from .placement import Oracle, Placement, RoundRobin
from .prompts import Prompts
from .routed import Routed
from .runs import Run, Setting
from .simulation import MemberUse, Simulation
from .trace import TraceOptions
from .workload import ReplayRequest

PREFILL_PER_DECODE = 4
"""Prefill members for one decode member: what chat traffic of 35 prompt tokens to one keeps as busy."""

Build: TypeAlias = Callable[[Sequence[PrefillMember], Sequence[DecodeMember], int], Placement]
"""The last is the trace's scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """Members in tokens of the trace, whatever its scale."""

    num_decode: int | None = None
    """None: one for each `PREFILL_PER_DECODE` prefill members. 0: requests end with a first token."""
    cache_tokens: int | None = None
    """Of each prefill member; None: `KIMI_PREFILL_TOKENS`."""
    decode_cache_tokens: int | None = None
    """None: `KIMI_DECODE_TOKENS`."""
    chunk_tokens: int = 8192
    max_batch: int = 128
    costs: Costs = field(default_factory=Costs)
    seed: int = 0


def simulated(
    requests: Iterable[ReplayRequest],
    trace: TraceOptions,
    fleet: FleetOptions,
    *,
    num_prefill: int,
    routing: str,
) -> Run:
    """Replay requests once; the outcome is in tokens of the trace.

    One token of the requests stands for `trace.scale` of those. More than `BLOCK_TOKENS` over
    `PAGE_TOKENS` of them leave blocks that are no whole pages, and hit rates that are too low.
    """
    if routing == "infinite":
        setting = Setting(
            routing=routing, num_prefill=num_prefill, scale=trace.scale, speed=trace.speed
        )
        num_prompt, num_cached = endless_hits(requests)
        return Run(setting=setting, hits=(num_prompt * trace.scale, num_cached * trace.scale))
    cache_tokens = fleet.cache_tokens or KIMI_PREFILL_TOKENS
    num_decode = fleet.num_decode
    if num_decode is None:
        num_decode = -(-num_prefill // PREFILL_PER_DECODE)
    prefill = _prefill_members(fleet, trace.scale, cache_tokens, num_prefill)
    decode = _decode_members(fleet, trace.scale, num_decode)
    outcome = Simulation(
        prefill=prefill,
        decode=decode,
        placement=_BUILD[routing](prefill, decode, trace.scale),
        prompts=Prompts(fleet.seed),
    ).run(requests)
    return Run(
        setting=Setting(
            routing=routing,
            num_prefill=num_prefill,
            num_decode=num_decode,
            cache_tokens=cache_tokens,
            scale=trace.scale,
            speed=trace.speed,
        ),
        requests=tuple(_unscaled(request, trace.scale) for request in outcome.requests),
        prefill=tuple(_unscaled_use(use, trace.scale) for use in outcome.prefill),
        num_preemptions=outcome.num_preemptions,
    )


def _prefill_members(
    fleet: FleetOptions, scale: int, cache_tokens: int, number: int
) -> list[PrefillMember]:
    size = MemberSize(
        cache_tokens=cache_tokens // scale,
        max_batch=fleet.max_batch,
        chunk_tokens=max(1, fleet.chunk_tokens // scale),
    )
    cost = fleet.costs.scaled(scale).prefill
    return [PrefillMember(size=size, cost=cost) for _ in range(number)]


def _decode_members(fleet: FleetOptions, scale: int, number: int) -> list[DecodeMember]:
    size = MemberSize(
        cache_tokens=(fleet.decode_cache_tokens or KIMI_DECODE_TOKENS) // scale,
        max_batch=fleet.max_batch,
    )
    cost = fleet.costs.scaled(scale).decode
    return [DecodeMember(size=size, cost=cost) for _ in range(number)]


def _unscaled(request: Measured, scale: int) -> Measured:
    return replace(
        request,
        num_prompt=request.num_prompt * scale,
        num_cached=request.num_cached * scale,
        # the first token is one token at any scale
        num_output=1 + (request.num_output - 1) * scale,
    )


def _unscaled_use(use: MemberUse, scale: int) -> MemberUse:
    return replace(
        use,
        num_prompt_tokens=use.num_prompt_tokens * scale,
        num_cached_tokens=use.num_cached_tokens * scale,
    )


def _router(scale: int) -> Router:
    # what it counts in tokens shrinks with them; members of a simulation all fit each other
    return Router(
        differences=lambda prefill, decode: (), load_floor_tokens=LOAD_FLOOR_TOKENS // scale
    )


_BUILD: dict[str, Build] = {
    "affinity": lambda prefill, decode, scale: Routed(
        prefill, decode, router=_router(scale), uses_sessions=True
    ),
    "prefix": lambda prefill, decode, scale: Routed(
        prefill, decode, router=_router(scale), uses_sessions=False
    ),
    "round-robin": lambda prefill, decode, scale: RoundRobin(prefill, decode),
    "oracle": lambda prefill, decode, scale: Oracle(prefill, decode),
}
