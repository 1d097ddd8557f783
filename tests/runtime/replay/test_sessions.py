"""Requests that continue a conversation share a session."""

from __future__ import annotations

from tenantry_runtime.replay.sessions import SessionChains
from tenantry_runtime.replay.trace import TraceRequest
from tenantry_runtime.replay.workload import workload


def sessions(*prompts: list[int]) -> list[int]:
    chains = SessionChains()
    return [chains.assign(blocks) for blocks in prompts]


def test_a_longer_prompt_continues_the_session_of_its_blocks() -> None:
    # each turn's last block was partial, so the next turn has another id there
    assert sessions([0, 1, 2], [0, 1, 3, 4], [0, 1, 3, 5, 6]) == [0, 0, 0]


def test_the_block_that_all_share_makes_no_session() -> None:
    assert sessions([0, 1], [0, 2], [0], [0]) == [0, 1, 2, 3]


def test_the_deepest_shared_block_decides() -> None:
    # 8 is the first session's, 9 the second's
    assert sessions([0, 8, 1], [0, 9, 2], [0, 9, 3], [0, 8, 4]) == [0, 1, 1, 0]


def test_a_request_that_knows_no_block_begins_a_session_for_those_after_it() -> None:
    chains = SessionChains()
    assert [chains.assign(b) for b in ([0, 1], [0, 5], [0, 5, 6], [0, 5, 6, 7])] == [0, 1, 1, 1]
    assert chains.num_sessions == 2


def test_a_session_is_always_the_same_tenants() -> None:
    requests = [
        TraceRequest(
            number=i, arrival_s=0, num_prompt=100, num_output=1, blocks=blocks, block_tokens=50
        )
        for i, blocks in enumerate([(0, 1), (0, 2), (0, 3), (0, 2), (0, 1)])
    ]
    named = [(each.session, each.tenant) for each in workload(requests, num_tenants=2)]
    assert named == [("s0", "t0"), ("s1", "t1"), ("s2", "t0"), ("s1", "t1"), ("s0", "t0")]
