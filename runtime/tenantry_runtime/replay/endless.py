"""One cache without end that all requests share: what no routing and no memory can exceed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenantry_runtime.core import PAGE_TOKENS

from .trace import TraceRequest
from .workload import ReplayRequest


def endless_hits(requests: Iterable[ReplayRequest]) -> tuple[int, int]:
    """Return the prompt tokens, and those of them that a request before has computed for its tenant.

    Whole pages count, as in a member; the last token of a prompt never does. Every prompt is there
    from the moment it arrives.
    """
    known: dict[str, dict[int, int]] = {}
    """By tenant: the blocks that were there, and of how many tokens."""
    num_prompt = num_cached = 0
    for request in requests:
        trace = request.trace
        lengths = known.setdefault(request.tenant, {})
        reusable = min(_num_known(trace, lengths), trace.num_prompt - 1)
        num_cached += reusable // PAGE_TOKENS * PAGE_TOKENS
        num_prompt += trace.num_prompt
        for block, length in trace.sized_blocks():
            lengths[block] = max(length, lengths.get(block, 0))
    return num_prompt, num_cached


def _num_known(trace: TraceRequest, lengths: Mapping[int, int]) -> int:
    num_known = 0
    for block, length in trace.sized_blocks():
        known = min(length, lengths.get(block, 0))
        num_known += known
        if known < length:
            break
    return num_known
