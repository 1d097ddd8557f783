"""What a node says of its pools: counts that agree with what was asked of them."""

from __future__ import annotations

import msgspec

from support.engine import MODEL, a_submit, an_engine, run_to_end
from support.pools import Cluster
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.pool.local_port import LocalExchange
from tenantry_runtime.pool.messages import NodeStatistics
from tenantry_runtime.pool.pool_report import PoolReport

NUM_PAGES = 16


def report(statistics: NodeStatistics) -> PoolReport:
    [pool] = statistics.pools
    assert pool.model == MODEL
    assert sum(pool.pages.values()) == NUM_PAGES, "each page is in one state"
    return pool


def test_steps_sequences_and_tokens_are_counted_by_phase() -> None:
    loop = an_engine(num_pages=NUM_PAGES, chunk_tokens=64)
    loop.submit(a_submit("a", prompt=[7] * 100, max_tokens=5, stop_token_ids=()))
    loop.submit(a_submit("b", prompt=[9] * 30, max_tokens=5, stop_token_ids=()))
    run_to_end(loop)
    pool = report(loop.statistics())

    prefill, decode = pool.steps["prefill"], pool.steps["decode"]
    assert prefill.num_tokens == 130
    # the first of 100 tokens is a chunk, and the chunk after it may take up both
    assert 2 <= prefill.num_steps <= 3
    # the first token is the prompt's, the others are one row each
    assert decode.num_sequences == decode.num_tokens == 2 * 4
    assert 4 <= decode.num_steps <= 8
    assert prefill.took_ns > 0 and decode.took_ns > 0
    assert (pool.num_prompt_tokens, pool.num_cached_tokens) == (130, 0)
    assert (pool.num_running, pool.num_waiting) == (0, 0)
    assert pool.mismatches == {}


def test_what_was_cached_is_counted_as_tokens() -> None:
    loop = an_engine(num_pages=NUM_PAGES)
    for name in ("a", "b"):
        loop.submit(a_submit(name, prompt=[7] * (2 * PAGE_TOKENS + 1), max_tokens=2))
        run_to_end(loop)
    pool = report(loop.statistics())
    assert pool.num_prompt_tokens == 2 * (2 * PAGE_TOKENS + 1)
    assert pool.num_cached_tokens == 2 * PAGE_TOKENS
    assert pool.num_kept_pages == pool.pages["shared"] == pool.num_unread_pages == 2
    [tenant] = pool.tenant_pages
    assert pool.tenant_pages[tenant] == 2


def test_hand_offs_are_counted_where_they_leave_and_where_they_arrive() -> None:
    exchange = LocalExchange()
    cluster = Cluster(
        {
            "p": an_engine(phases=("prefill",), num_pages=NUM_PAGES, port=exchange.port("p")),
            "d": an_engine(phases=("decode",), num_pages=NUM_PAGES, port=exchange.port("d")),
        }
    )
    cluster.send(a_submit("a", prompt=[7] * (PAGE_TOKENS + 10), max_tokens=3), "p", "d")
    cluster.run_to_end()
    sent = report(cluster.nodes["p"].statistics())
    received = report(cluster.nodes["d"].statistics())
    assert (sent.sent.num_pages, sent.sent.num_handoffs, sent.sent.num_failed) == (2, 1, 0)
    assert sent.sent.num_bytes == received.received.num_bytes > 0
    assert received.received.num_pages == 2
    assert sent.sent.took_ns > 0
    assert set(sent.steps) == {"prefill"} and set(received.steps) == {"decode"}


def test_a_report_from_an_older_node_lacks_nothing_that_is_needed() -> None:
    old = msgspec.msgpack.encode(
        {
            "loop_turn_ns": 1,
            "num_running": 0,
            "num_waiting": 0,
            "num_free_pages": {},
            "pools": [{"model": "m", "phases": ["decode"], "pages": {"free": 1}}],
        }
    )
    [pool] = msgspec.msgpack.decode(old, type=NodeStatistics).pools
    assert pool.sent.num_pages == 0 and pool.steps == {}
