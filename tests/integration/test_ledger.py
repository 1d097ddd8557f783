"""Ten thousand requests, while edges and nodes are killed: the ledger has what clients saw."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from support.cluster import GLM, KIMI
from support.counting_node import generated
from support.ledger_client import Ask, Seen, ask
from support.ledger_cluster import NUM_FAKES, LedgerCluster, a_ledger_cluster
from support.ledgers import assert_sums_agree, daily_rows, usage_rows
from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import Interruption, Store, open_store
from tenantry_runtime.tenancy.ledger import JOURNAL_DIRECTORY, open_ledger

pytestmark = pytest.mark.ledger

NUM_REQUESTS = 10_000
NUM_REAL = 300
"""Of them to the real model."""
NUM_CLIENTS = 64
NUM_KILLS = 24
SPACING = NUM_REQUESTS // (NUM_KILLS + 1)
"""Requests from one kill to the next."""
MAX_AHEAD = 3
"""So many times that, clients are ahead of who kills: however long processes take to start."""
NUM_TENANTS = 5

OURS = {Interruption.FAILED, Interruption.EDGE_CLOSING, Interruption.EDGE_LOST}

PICO_PER_NEURON = 11_000_000


def asks(rng: random.Random, tenants: list[tuple[str, str]]) -> Iterator[Ask]:
    """Make requests of all kinds in random order."""
    real = set(rng.sample(range(NUM_REQUESTS), NUM_REAL))
    for number in range(NUM_REQUESTS):
        account, token = rng.choice(tenants)
        is_real = number in real
        stream = rng.random() < 0.7
        leaves = rng.random() < 0.1
        yield Ask(
            trace_id=f"{number + 1:032x}",
            account=account,
            token=token,
            model=GLM if is_real else KIMI,
            prompt=" ".join(["word"] * rng.randint(1, 40)),
            max_tokens=rng.randint(1, 8) if is_real else rng.randint(1, 90),
            thinking=rng.random() < 0.2,
            stop="x" * rng.randint(1, 50) if rng.random() < 0.1 else None,
            stream=stream,
            leaves_after=rng.randint(0, 6000) if leaves else None,
        )


@dataclass(slots=True)
class Load:
    """All clients, and whoever kills what serves them."""

    cluster: LedgerCluster
    asks: Iterator[Ask]
    rng: random.Random
    seen: list[Seen] = field(default_factory=list)
    progress: anyio.Event = field(default_factory=anyio.Event)
    num_kills: int = 0
    num_asked: int = 0
    num_replaced: int = 0

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as clients:
                tasks.start_soon(self._kill_some)
                for _ in range(NUM_CLIENTS):
                    clients.start_soon(self._ask_some)

    async def _ask_some(self) -> None:
        for asked in self.asks:
            self.num_asked += 1
            while self.num_asked > (self.num_replaced + MAX_AHEAD) * SPACING:
                await self.progress.wait()
            while True:
                # three edges, of which one at a time is away
                seen = await ask(self.rng.choice([*self.cluster.ports.values()]), asked)
                if seen.was_sent:
                    break
            self.seen.append(seen)
            self._progressed()

    def _progressed(self) -> None:
        self.progress.set()
        self.progress = anyio.Event()

    async def _kill_some(self) -> None:
        for number in range(NUM_KILLS):
            # none at the end, so that the last one has something to kill; and never a process that
            # has nothing to do yet
            at = (number + self.rng.random()) * SPACING
            at = max(at, len(self.seen) + 2 * NUM_CLIENTS)
            if at >= NUM_REQUESTS:
                return
            while len(self.seen) < at:
                await self.progress.wait()
            self.num_kills += 1
            edge = self.rng.choice(self.cluster.edges)
            if number % 8 == 4:
                await self.cluster.restart_edge(edge)
            elif number % 3 == 2:
                fakes = self.cluster.nodes[:NUM_FAKES]
                # the real one takes its time to start
                victim = self.cluster.nodes[-1] if number == 8 else self.rng.choice(fakes)
                await self.cluster.kill_node(victim)
            else:
                await self.cluster.kill_edge(edge)
            self.num_replaced += 1
            self._progressed()


@pytest.mark.asyncio
async def test_the_ledger_has_what_clients_saw_whoever_is_killed(
    tmp_path: Path, database_url: str | None
) -> None:
    state_dir = tmp_path / "state"
    rng = random.Random(5)
    async with open_store(state_dir, url=database_url) as store:
        tenants = await make_tenants(store)
        async with a_ledger_cluster(tmp_path, state_dir, database_url) as cluster:
            load = Load(cluster, asks(rng, tenants), rng)
            await load.run()
            assert [await edge.end() for edge in cluster.edges] == [0] * len(cluster.edges)
        # what the last that were killed have left
        async with open_ledger(store.database, state_dir / JOURNAL_DIRECTORY, max_open=1):
            pass
        rows = await usage_rows(store.database)
        daily = await daily_rows(store.database)

    assert len(load.seen) == NUM_REQUESTS
    # the last may find nothing left to disturb
    assert load.num_kills >= NUM_KILLS - 1
    check_records(load.seen, [*rows.values()], generated(cluster.counts))
    assert_sums_agree([*rows.values()], daily)
    # nothing is left over, damaged or rejected
    assert [path.name for path in (state_dir / JOURNAL_DIRECTORY).iterdir()] == ["lock"]


async def make_tenants(store: Store) -> list[tuple[str, str]]:
    tenants: list[tuple[str, str]] = []
    for number in range(NUM_TENANTS):
        account = TenantId(f"tenant-{number}")
        await store.create_account(account)
        token = await store.create_token(account, name="test")
        tenants.append((account, token.secret))
    return tenants


def check_records(
    all_seen: list[Seen], rows: list[dict[str, Any]], num_generated: Counter[str]
) -> None:
    by_trace = {row["trace_id"]: row for row in rows}
    assert len(by_trace) == len(rows), "a request has two records"
    assert set(by_trace) <= {seen.ask.trace_id for seen in all_seen}

    # nothing was generated for nothing
    recorded = {row["request_id"] for row in rows}
    assert set(num_generated) <= recorded

    for row in rows:
        assert row["output_tokens"] <= num_generated[row["request_id"]]
        assert row["reasoning_tokens"] <= row["output_tokens"]
        assert row["cached_tokens"] <= row["input_tokens"]
        # nothing of a prompt without something of its answer
        assert (row["input_tokens"] > 0) == (row["output_tokens"] > 0)
        assert row["cost"] == (
            (row["input_tokens"] - row["cached_tokens"]) * 950_000
            + row["cached_tokens"] * 160_000
            + row["output_tokens"] * 4_000_000
        )
    for seen in all_seen:
        check_one(seen, by_trace.get(seen.ask.trace_id))
    check_that_enough_happened(all_seen, rows)


def check_one(seen: Seen, row: dict[str, Any] | None) -> None:
    if seen.is_whole:
        assert row is not None
        assert seen.usage is not None
        told = seen.usage
        assert row["request_id"] == seen.request_id
        assert row["outcome"] == seen.finish_reason or seen.finish_reason is None
        assert row["input_tokens"] == told["prompt_tokens"]
        assert row["output_tokens"] == told["completion_tokens"]
        assert row["cached_tokens"] == told["prompt_tokens_details"]["cached_tokens"]
        assert row["reasoning_tokens"] == told["completion_tokens_details"]["reasoning_tokens"]
        assert told["neurons"] == row["cost"] / PICO_PER_NEURON
    elif seen.text:
        assert row is not None
        assert row["request_id"] == seen.request_id
        if seen.ask.model == KIMI:
            # each token is an "x"
            assert seen.text == "x" * len(seen.text)
            assert len(seen.text) <= row["output_tokens"]
    if row is not None and not seen.ask.stream and row["outcome"] in OURS:
        # nothing of it was delivered
        assert row["cost"] == 0


def check_that_enough_happened(all_seen: list[Seen], rows: list[dict[str, Any]]) -> None:
    """The test has tested something."""
    outcomes = Counter(row["outcome"] for row in rows)
    whole = Counter(seen.ask.model for seen in all_seen if seen.is_whole)
    print(f"whole: {dict(whole)}, outcomes: {dict(outcomes)}")
    assert whole[KIMI] > NUM_REQUESTS / 2
    assert whole[GLM] >= NUM_REAL / 2
    assert outcomes["edge_lost"] > 20
    assert outcomes["edge_closing"] > 5
    assert outcomes["failed"] > 5
    assert outcomes["client_gone"] > 100
    assert any(row["outcome"] == "edge_lost" and row["output_tokens"] for row in rows)
    assert any(row["cached_tokens"] for row in rows)
    assert any(row["reasoning_tokens"] for row in rows)
