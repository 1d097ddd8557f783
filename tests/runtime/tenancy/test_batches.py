"""Batches in the store, on both databases: one queue for several edges, of which any may die."""

from __future__ import annotations

import json
from typing import Any

import anyio
import msgspec
import pytest
import sqlalchemy as sa

from support.ledgers import a_record
from support.limits import Clock
from tenantry_runtime.core import TenantId, Usage
from tenantry_runtime.errors import (
    AccountSuspended,
    Forbidden,
    NoSuchRecord,
    RateExceeded,
    Unauthenticated,
)
from tenantry_runtime.tenancy import Store, batches as batches_module, schema
from tenantry_runtime.tenancy.batch_queue import LEASE_MS, BatchQueue, Claim
from tenantry_runtime.tenancy.batches import (
    RETENTION_MS,
    BatchRequest,
    BatchResponse,
)
from tenantry_runtime.tenancy.ledger.recording import record_usage

ALICE, BOB = TenantId("alice"), TenantId("bob")
MODEL = "@cf/moonshotai/kimi-k2.6"
USAGE = Usage(prompt_tokens=10, completion_tokens=5)


@pytest.fixture
def clock(store: Store) -> Clock:
    clock = Clock()
    store.database.now_ms = clock
    return clock


async def submit(store: Store, num: int = 1, *, account: TenantId = ALICE) -> str:
    await store.create_account(account)
    token = await store.create_token(account, name="test")
    requests = [
        BatchRequest(body=json.dumps({"prompt": f"{n}"}).encode(), external_reference=f"ref-{n}")
        for n in range(num)
    ]
    return await store.batches.submit(account, token.id, MODEL, requests)


def a_response(claim: Claim, text: str = "hello") -> BatchResponse:
    return BatchResponse(
        id=claim.number,
        success=True,
        external_reference=claim.external_reference,
        result=msgspec.Raw(json.dumps({"text": text}).encode()),
    )


async def status(store: Store, batch_id: str) -> str:
    batch = await store.batches.find(batch_id)
    assert batch is not None
    return batch.status


async def responses(store: Store, batch_id: str) -> list[dict[str, Any]]:
    return [json.loads(each) for each in await store.batches.responses(batch_id)]


@pytest.mark.asyncio
async def test_a_batch_goes_from_queued_to_running_to_complete(store: Store) -> None:
    batch_id = await submit(store, 2)
    queue = BatchQueue(store.database)
    assert await status(store, batch_id) == "queued"
    assert await queue.accounts() == [ALICE]
    first, second = await queue.claim(ALICE, 9)
    assert await status(store, batch_id) == "running"
    assert json.loads(first.body) == {"prompt": "0"}
    assert first.request_id != second.request_id
    await queue.finish(second, a_response(second), USAGE)
    await queue.finish(first, a_response(first), USAGE)

    assert await status(store, batch_id) == "complete"
    assert await queue.accounts() == []
    assert await responses(store, batch_id) == [
        {"id": n, "success": True, "external_reference": f"ref-{n}", "result": {"text": "hello"}}
        for n in range(2)
    ]
    [batch] = await store.batches.list(account=ALICE)
    assert (batch.prompt_tokens, batch.completion_tokens, batch.num_done) == (20, 10, 2)


@pytest.mark.asyncio
async def test_no_two_edges_have_the_same_request(store: Store) -> None:
    await submit(store, 5)
    queues = [BatchQueue(store.database) for _ in range(3)]
    claimed = [claim for queue in queues for claim in await queue.claim(ALICE, 2)]
    assert sorted(claim.number for claim in claimed) == [0, 1, 2, 3, 4]


@pytest.mark.asyncio
async def test_edges_that_claim_and_answer_at_once_share_a_batch(store: Store) -> None:
    batch_id = await submit(store, 40)
    answered: list[int] = []

    async def work() -> None:
        queue = BatchQueue(store.database)
        while claims := await queue.claim(ALICE, 3):
            assert await queue.renew(claims) == set()
            for claim in claims:
                assert await queue.finish(claim, a_response(claim), USAGE)
                answered.append(claim.number)

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(work)
    assert sorted(answered) == list(range(40))
    batch = await store.batches.find(batch_id)
    assert batch is not None
    assert (batch.status, batch.completion_tokens) == ("complete", 200)


@pytest.mark.asyncio
async def test_what_a_dead_edge_ran_is_run_by_another_when_its_lease_has_ended(
    store: Store, clock: Clock
) -> None:
    await submit(store)
    dead, alive = BatchQueue(store.database), BatchQueue(store.database)
    [lost] = await dead.claim(ALICE, 1)
    clock.advance(LEASE_MS / 1000 - 0.001)
    assert await alive.claim(ALICE, 1) == []
    clock.advance(0.001)
    [found] = await alive.claim(ALICE, 1)
    assert (found.number, found.attempt) == (lost.number, 2)
    assert found.request_id != lost.request_id


@pytest.mark.asyncio
async def test_a_lease_that_is_renewed_does_not_end(store: Store, clock: Clock) -> None:
    await submit(store)
    holder, other = BatchQueue(store.database), BatchQueue(store.database)
    [claim] = await holder.claim(ALICE, 1)
    for _ in range(5):
        clock.advance(LEASE_MS / 2000)
        assert await holder.renew([claim]) == set()
        assert await other.claim(ALICE, 1) == []


@pytest.mark.asyncio
async def test_who_has_stood_still_for_too_long_learns_that_its_claim_is_lost(
    store: Store, clock: Clock
) -> None:
    await submit(store, 2)
    slow, other = BatchQueue(store.database), BatchQueue(store.database)
    mine = await slow.claim(ALICE, 2)
    clock.advance(LEASE_MS / 1000)
    [taken] = await other.claim(ALICE, 1)
    assert {claim.number for claim in await slow.renew(mine)} == {taken.number}
    # and what it had is not its own to give back
    await slow.release(mine)
    assert await other.renew([taken]) == set()


@pytest.mark.asyncio
async def test_the_first_response_stays(store: Store, clock: Clock) -> None:
    batch_id = await submit(store)
    slow, fast = BatchQueue(store.database), BatchQueue(store.database)
    [late] = await slow.claim(ALICE, 1)
    clock.advance(LEASE_MS / 1000)
    [claim] = await fast.claim(ALICE, 1)
    assert await fast.finish(claim, a_response(claim, "first"), USAGE)
    assert not await slow.finish(late, a_response(late, "second"), USAGE)

    assert [each["result"] for each in await responses(store, batch_id)] == [{"text": "first"}]
    clock.advance(LEASE_MS / 1000)
    assert await slow.claim(ALICE, 1) == [], "it has a response"
    batch = await store.batches.find(batch_id)
    assert batch is not None
    assert (batch.num_done, batch.completion_tokens) == (1, 5)


@pytest.mark.asyncio
async def test_what_is_given_back_waits_its_time_and_is_excused_or_not(
    store: Store, clock: Clock
) -> None:
    await submit(store)
    queue = BatchQueue(store.database)
    [claim] = await queue.claim(ALICE, 1)
    await queue.release([claim], delay_s=2)
    assert await queue.claim(ALICE, 1) == []
    clock.advance(2)
    [claim] = await queue.claim(ALICE, 1)
    assert claim.num_failures == 0
    await queue.release([claim], is_excused=False)
    [claim] = await queue.claim(ALICE, 1)
    assert claim.num_failures == 1


@pytest.mark.asyncio
async def test_whose_edges_die_of_it_has_failed_as_often(store: Store, clock: Clock) -> None:
    await submit(store)
    for num_failures in range(3):
        [claim] = await BatchQueue(store.database).claim(ALICE, 1)
        assert claim.num_failures == num_failures
        clock.advance(LEASE_MS / 1000)


@pytest.mark.asyncio
async def test_a_tenant_cannot_fill_the_queue(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_module, "MAX_QUEUED", 3)
    batch_id = await submit(store, 2)
    with pytest.raises(RateExceeded):
        await submit(store, 2)
    await submit(store, 3, account=BOB)
    queue = BatchQueue(store.database)
    for claim in await queue.claim(ALICE, 2):
        await queue.finish(claim, a_response(claim), USAGE)
    assert await status(store, batch_id) == "complete"
    await submit(store, 3)


@pytest.mark.asyncio
async def test_a_canceled_batch_is_complete_at_once_and_what_ran_is_lost(store: Store) -> None:
    batch_id = await submit(store, 3)
    queue = BatchQueue(store.database)
    done, running = await queue.claim(ALICE, 2)
    await queue.finish(done, a_response(done), USAGE)

    assert await store.batches.cancel(batch_id) == 2
    assert await status(store, batch_id) == "complete"
    assert await queue.renew([running]) == {running}
    assert not await queue.finish(running, a_response(running), USAGE)
    assert [each["success"] for each in await responses(store, batch_id)] == [True, False, False]
    with pytest.raises(NoSuchRecord):
        await store.batches.cancel("nobody's")


@pytest.mark.asyncio
async def test_responses_stay_for_a_day_and_what_is_not_complete_stays(
    store: Store, clock: Clock
) -> None:
    old, waiting = await submit(store), await submit(store)
    queue = BatchQueue(store.database)
    [claim] = await queue.claim(ALICE, 1)
    await queue.finish(claim, a_response(claim), USAGE)
    kept = waiting if claim.batch_id == old else old
    clock.advance(RETENTION_MS / 1000)
    assert await store.batches.sweep() == 0
    clock.advance(1)
    assert await store.batches.sweep() == 1
    assert [batch.id for batch in await store.batches.list()] == [kept]
    async with store.database.connect() as connection:
        left = await connection.execute(sa.select(schema.batch_requests.c.batch_id))
    assert left.scalars().all() == [kept]


@pytest.mark.asyncio
async def test_a_request_runs_on_the_terms_that_hold_when_it_runs(store: Store) -> None:
    await submit(store)
    [claim] = await BatchQueue(store.database).claim(ALICE, 1)
    queue = BatchQueue(store.database)
    assert (await queue.principal(claim)).tenant == ALICE
    await store.accounts.suspend(ALICE)
    with pytest.raises(AccountSuspended):
        await queue.principal(claim)
    await store.accounts.resume(ALICE)
    await store.revoke_token(claim.token_id)
    with pytest.raises(Unauthenticated):
        await queue.principal(claim)
    await store.accounts.delete(ALICE)
    with pytest.raises(Forbidden):
        await queue.principal(claim)


@pytest.mark.asyncio
async def test_a_batch_takes_no_place_of_requests_that_run_at_one_time(store: Store) -> None:
    await submit(store)
    changes = {
        (*place, name): number
        for place in (("quota",), ("models", MODEL))
        for name, number in (("concurrent_requests", 1), ("requests_per_minute", 7))
    }
    await store.accounts.change(ALICE, changes=changes)
    queue = BatchQueue(store.database)
    [claim] = await queue.claim(ALICE, 1)
    plan = (await queue.principal(claim)).plan
    for model in (MODEL, "another"):
        assert plan.quota_of(model).concurrent_requests is None
        assert plan.quota_of(model).requests_per_minute == 7


@pytest.mark.asyncio
async def test_an_attempt_after_one_that_was_billed_is_known(store: Store, clock: Clock) -> None:
    await submit(store)
    dead, alive = BatchQueue(store.database), BatchQueue(store.database)
    [lost] = await dead.claim(ALICE, 1)
    assert not await dead.is_billed(lost)
    clock.advance(LEASE_MS / 1000)
    [again] = await alive.claim(ALICE, 1)
    assert not await alive.is_billed(again)
    await record_usage(store.database, [a_record(lost.request_id, tenant=ALICE)])
    assert await alive.is_billed(again)


@pytest.mark.asyncio
async def test_what_a_worker_submits_runs_for_its_tenant_without_a_token(store: Store) -> None:
    await store.create_account(ALICE)
    await store.accounts.change(ALICE, changes={("quota", "concurrent_requests"): 1})
    batch_id = await store.batches.submit(
        ALICE, "", MODEL, [BatchRequest(body=b"{}")], worker="w", worker_version="v"
    )
    queue = BatchQueue(store.database)
    [claim] = await queue.claim(ALICE, 1)

    principal = await queue.principal(claim)

    assert (principal.tenant, principal.token_id) == (ALICE, "")
    assert (principal.worker, principal.worker_version) == ("w", "v")
    # as for all batches
    assert principal.plan.quota.concurrent_requests is None
    batch = await store.batches.find(batch_id)
    assert batch is not None
    assert (batch.worker, batch.worker_version) == ("w", "v")

    await store.accounts.suspend(ALICE)
    with pytest.raises(AccountSuspended):
        await queue.principal(claim)
    await store.accounts.delete(ALICE)
    with pytest.raises(Forbidden):
        await queue.principal(claim)
