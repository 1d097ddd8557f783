"""Pages of a tree that nobody reads, above some that somebody does: they cannot be evicted."""

from __future__ import annotations

from typing import Any

from support.scheduling import Desk
from tenantry_runtime.core import Share
from tenantry_runtime.engine.sequence import Running


def overlapping(desk: Desk, *, num_shared: int, num_prompt: int, **more: Any) -> None:
    """Two prompts that begin alike are computed in one chunk; the first has then all it wants."""
    prefix = [7] * num_shared
    rest = [8] * (num_prompt - num_shared)
    desk.add("short", prompt=prefix, max_tokens=1, tenant="a", **more)
    desk.add("long", prompt=prefix + rest, max_tokens=20, tenant="a", **more)
    desk.turn()
    assert desk.finished == ["short"]


def test_all_that_counts_as_evictable_is_evicted() -> None:
    desk = Desk(num_pages=16, max_batch=8, chunk_tokens=1024)
    overlapping(desk, num_shared=256, num_prompt=482)
    promised = desk.prefixes.num_evictable
    assert desk.prefixes.evict(16) == promised == 0
    # eight of the second, and four of the first, above its own
    assert desk.pool.num_free == 4


def test_a_claim_within_a_guarantee_is_met_and_preempts_nobody_in_vain() -> None:
    desk = Desk(num_pages=16, max_batch=8, chunk_tokens=1024)
    half = Share(guaranteed=0.5)
    overlapping(desk, num_shared=256, num_prompt=482, share=half)
    desk.add("b", prompt=[9] * 200, max_tokens=30, tenant="b")
    desk.turn()
    desk.add("c", prompt=[11] * 500, max_tokens=10, tenant="c", share=half)
    desk.turn()
    assert isinstance(desk.sequences["c"].state, Running), "it is within its guarantee"
    for _ in range(9):
        desk.turn()
    # the one for c, and one when "long" claims its own guarantee again
    assert desk.scheduler.statistics().num_preemptions <= 2
