"""Traces of a few requests, members of a few pages, and costs that can be added up by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.replay.costs import StepCost
from tenantry_runtime.replay.member import DecodeMember, MemberSize, PrefillMember
from tenantry_runtime.replay.placement import Placement, RoundRobin
from tenantry_runtime.replay.prompts import Prompts
from tenantry_runtime.replay.simulation import Outcome, Simulation
from tenantry_runtime.replay.trace import TraceRequest
from tenantry_runtime.replay.workload import ReplayRequest
from tenantry_runtime.routing.router import Router

PUBLIC_TRACE = (
    Path(__file__).parents[2] / ".." / "shared" / "traces" / "mooncake_conversation.jsonl"
)

PLENTY = 1 << 16

Choose = Callable[[Sequence[PrefillMember], Sequence[DecodeMember]], Placement]


def a_line(**fields: Any) -> dict[str, Any]:
    """Return a line of a trace: 600 tokens, so two blocks."""
    return {
        "timestamp": 0,
        "input_length": 600,
        "output_length": 5,
        "hash_ids": [0, 1],
        **fields,
    }


def lines_of(*lines: object) -> list[bytes]:
    return [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]


def a_request(
    number: int,
    *blocks: int,
    at_s: float = 0.0,
    num_prompt: int | None = None,
    num_output: int = 1,
    session: str = "s0",
    tenant: str = "t0",
) -> ReplayRequest:
    """Return a request whose blocks are as long as a page; by default its last one has one token."""
    if num_prompt is None:
        num_prompt = (len(blocks) - 1) * PAGE_TOKENS + 1
    trace = TraceRequest(
        number=number,
        arrival_s=at_s,
        num_prompt=num_prompt,
        num_output=num_output,
        blocks=blocks,
        block_tokens=PAGE_TOKENS,
    )
    return ReplayRequest(trace=trace, session=session, tenant=tenant)


def simulate(
    requests: Iterable[ReplayRequest],
    *,
    choose: Choose = RoundRobin,
    num_prefill: int = 1,
    num_decode: int = 0,
    cache_pages: int = PLENTY,
    decode_pages: int = PLENTY,
    chunk_tokens: int = PLENTY,
    prefill: StepCost | None = None,
    decode: StepCost | None = None,
) -> Outcome:
    """Replay requests; a prefill step takes a second and a decode step a tenth, if not said else."""
    size = MemberSize(cache_tokens=cache_pages * PAGE_TOKENS, chunk_tokens=chunk_tokens)
    prefill_cost = prefill or StepCost(fixed_s=1.0, token_s=0.0, read_s=0.0)
    decode_cost = decode or StepCost(fixed_s=0.1, token_s=0.0, read_s=0.0)
    prefillers = [PrefillMember(size=size, cost=prefill_cost) for _ in range(num_prefill)]
    decode_size = MemberSize(cache_tokens=decode_pages * PAGE_TOKENS)
    decoders = [DecodeMember(size=decode_size, cost=decode_cost) for _ in range(num_decode)]
    outcome = Simulation(
        prefill=prefillers,
        decode=decoders,
        placement=choose(prefillers, decoders),
        prompts=Prompts(),
    ).run(requests)
    for member in (*prefillers, *decoders):
        assert member.pool.audit() == []
        assert member.prefixes.audit() == []
        assert member.scheduler.is_idle
    return outcome


def a_router() -> Router:
    return Router(differences=lambda prefill, decode: ())


def cached(outcome: Outcome) -> list[int]:
    """Return the cached tokens of each request, in the order of the trace."""
    in_order = sorted(outcome.requests, key=lambda request: request.number)
    return [request.num_cached for request in in_order]
