"""Limits that several edges share, on either database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.limits import (
    Clock,
    a_principal,
    a_request,
    a_store,
    ask_at_once,
    edges,
    is_admitted,
    written_down,
)
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import QuotaExceeded, RateExceeded
from tenantry_runtime.tenancy import Store, schema

OTHER_MODEL = "@cf/zai-org/glm-5.2"


@pytest.mark.asyncio
async def test_three_edges_admit_a_limit_of_requests_and_not_one_more(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, principal = Clock(), a_principal(requests=10)
    async with edges(tmp_path, database_url, clock, 3) as limiters:
        burst = await ask_at_once(limiters, a_request(principal), times=12)
        # one every six seconds
        clock.advance(5.9)
        early = await ask_at_once(limiters, a_request(principal), times=2)
        clock.advance(0.1)
        due = await ask_at_once(limiters, a_request(principal), times=2)
        clock.advance(30)
        later = await ask_at_once(limiters, a_request(principal), times=4)

    assert burst.num_admitted == 10
    assert {(refused.limit, refused.retry_after_s) for refused in burst.refusals} == {
        ("requests_per_minute", 6)
    }
    assert (early.num_admitted, due.num_admitted, later.num_admitted) == (0, 1, 5)
    assert {refused.retry_after_s for refused in early.refusals} == {1}


@pytest.mark.asyncio
async def test_three_edges_admit_a_limit_of_tokens_and_not_one_more(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, principal = Clock(), a_principal(tokens=1_000)
    request = a_request(principal, prompt=60, answer=40)
    async with edges(tmp_path, database_url, clock, 3) as limiters:
        burst = await ask_at_once(limiters, request, times=6, used=100)
        for limiter in limiters:
            await written_down(limiter)
        again = await ask_at_once(limiters, request, times=1, used=100)
        clock.advance(12)
        later = await ask_at_once(limiters, request, times=2, used=100)

    assert burst.num_admitted == 10
    assert {refused.limit for refused in burst.refusals} == {"tokens_per_minute"}
    # 100 of 1,000 a minute
    assert {refused.retry_after_s for refused in burst.refusals} == {6}
    assert (again.num_admitted, later.num_admitted) == (0, 2)


@pytest.mark.asyncio
async def test_tokens_that_were_not_used_are_there_for_others(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, principal = Clock(), a_principal(tokens=1_000)
    request = a_request(principal, prompt=60, answer=40)
    async with edges(tmp_path, database_url, clock, 2) as limiters:
        burst = await ask_at_once(limiters, request, times=10, used=60)
        for limiter in limiters:
            await written_down(limiter)
        again = await ask_at_once(limiters, request, times=10, used=60)

    # 600 were used, and each asks for 100
    assert (burst.num_admitted, again.num_admitted) == (10, 4)


@pytest.mark.asyncio
async def test_a_request_for_more_than_a_minutes_tokens_runs_when_all_are_there(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, principal = Clock(), a_principal(tokens=1_000)
    large, small = a_request(principal, prompt=5_000), a_request(principal)
    async with edges(tmp_path, database_url, clock) as [limiter]:
        async with limiter.admit(large) as permit:
            permit.use(5_001)
        await written_down(limiter)

        with pytest.raises(RateExceeded) as refused:
            await limiter.admit(small).__aenter__()
        # 4,001 more than there were, and 2 for the next one: it pays for what it took
        assert refused.value.retry_after_s == 241
        clock.advance(240.5)
        assert await is_admitted(limiter, small)
        await written_down(limiter)
        assert not await is_admitted(limiter, large)
        clock.advance(60)
        assert await is_admitted(limiter, large)


@pytest.mark.asyncio
async def test_answers_are_expected_to_be_as_long_as_the_tenants_have_been(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, principal = Clock(), a_principal(tokens=1_000)
    request = a_request(principal, prompt=10, answer=None)
    async with edges(tmp_path, database_url, clock) as [limiter]:
        # 522 of 1,000: of a tenant without answers, 512 tokens are expected
        assert (await ask_at_once([limiter], request, times=3, used=30)).num_admitted == 1
        await written_down(limiter)
        # 30 of them are used; 970 are enough for 32 times 30
        assert (await ask_at_once([limiter], request, times=40, used=30)).num_admitted == 32


@pytest.mark.asyncio
async def test_several_answers_are_expected_to_be_as_long_as_that_each(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, principal = Clock(), a_principal(tokens=3_000)
    request = replace(a_request(principal, prompt=10, answer=None), num_answers=4)
    async with edges(tmp_path, database_url, clock) as [limiter]:
        # the prompt's 10 and four times 512, of 3,000
        assert (await ask_at_once([limiter], request, times=3, used=90)).num_admitted == 1
        await written_down(limiter)
        # 20 of each answer are used; 2,910 are enough for 32 times 90
        assert (await ask_at_once([limiter], request, times=40, used=90)).num_admitted == 32


@pytest.mark.asyncio
async def test_three_edges_have_a_limit_of_requests_open_and_not_one_more(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, request = Clock(), a_request(a_principal(concurrent=4))
    async with edges(tmp_path, database_url, clock, 3) as limiters:
        for _ in range(3):
            # what was open in the round before has ended
            tally = await ask_at_once(limiters, request, times=5)
            assert tally.num_admitted == 4
            assert {(refused.limit, refused.retry_after_s) for refused in tally.refusals} == {
                ("concurrent_requests", 1)
            }
            for limiter in limiters:
                await written_down(limiter)


@pytest.mark.asyncio
async def test_models_and_tenants_have_limits_of_their_own(
    tmp_path: Path, database_url: str | None
) -> None:
    principal, other = a_principal(requests=1), a_principal("other", requests=1)
    async with edges(tmp_path, database_url, Clock()) as [limiter]:
        assert await is_admitted(limiter, a_request(principal))
        assert not await is_admitted(limiter, a_request(principal))
        assert await is_admitted(limiter, a_request(principal, model=OTHER_MODEL))
        assert await is_admitted(limiter, a_request(other))


@pytest.mark.asyncio
async def test_a_refused_request_takes_nothing(tmp_path: Path, database_url: str | None) -> None:
    principal = a_principal(requests=3, tokens=100, concurrent=5)
    async with edges(tmp_path, database_url, Clock()) as [limiter]:
        large = a_request(principal, prompt=80)
        # the second and all later ones lack tokens
        tally = await ask_at_once([limiter], large, times=20, used=81)
        assert tally.num_admitted == 1
        await written_down(limiter)

        small = await ask_at_once([limiter], a_request(principal), times=5, used=2)
        assert small.num_admitted == 2
        await written_down(limiter)
        assert limiter.headers(principal, large.model)["ratelimit"] == (
            '"requests";r=0;t=20, "tokens";r=15;t=51, "concurrency";r=5'
        )


async def spend(store: Store, day: str, neurons: int) -> None:
    counts = ("requests", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
    row = {"account_id": "tenant", "day": day, "model": "m", **dict.fromkeys(counts, 1)}
    async with store.database.begin() as connection:
        for worker in ("", "w"):
            values = {**row, "worker": worker, "cost": neurons * 11_000_000 // 2}
            await connection.execute(schema.daily_usage.insert().values(values))


@pytest.mark.asyncio
async def test_neurons_of_a_day_are_there_again_at_midnight(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, principal = Clock(), a_principal(neurons=100)
    request = a_request(principal)
    async with (
        a_store(tmp_path, database_url, clock) as store,
        edges(tmp_path, database_url, clock) as [limiter],
    ):
        await store.accounts.create(TenantId("tenant"))
        await spend(store, "2026-12-31", 1_000)
        assert await is_admitted(limiter, request)
        standing = limiter.headers(principal, request.model)["ratelimit"]
        assert standing == '"neurons";r=100;t=43200'

        await spend(store, "2027-01-01", 100)
        with pytest.raises(QuotaExceeded) as refused:
            await limiter.admit(request).__aenter__()
        assert refused.value.retry_after_s == 12 * 3600
        assert limiter.headers(principal, request.model)["ratelimit"] == '"neurons";r=0;t=43200'
        # from now on without asking
        with pytest.raises(QuotaExceeded):
            limiter.precheck(principal, request.model)

        clock.advance(12 * 3600)
        limiter.precheck(principal, request.model)
        assert await is_admitted(limiter, request)


@pytest.mark.asyncio
async def test_what_is_known_to_be_refused_is_refused_without_asking(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, principal = Clock(), a_principal(requests=6, tokens=10, concurrent=2)
    model = a_request(principal).model
    async with edges(tmp_path, database_url, clock, 2) as [limiter, other]:
        limiter.precheck(principal, model)
        async with limiter.admit(a_request(principal)):
            limiter.precheck(principal, model)
            async with limiter.admit(a_request(principal)):
                with pytest.raises(RateExceeded, match="concurrent requests"):
                    limiter.precheck(principal, model)
            # what is open at other edges may have ended
            other.precheck(principal, model)
        await ask_at_once([limiter], a_request(principal), times=2)
        await ask_at_once([limiter], a_request(principal), times=2)

        with pytest.raises(RateExceeded, match=r"requests per min.*10 s"):
            limiter.precheck(principal, model)
        clock.advance(9.9)
        with pytest.raises(RateExceeded, match=r"requests per min.*1 s"):
            limiter.precheck(principal, model)
        clock.advance(0.1)
        limiter.precheck(principal, model)


@pytest.mark.asyncio
async def test_headers_have_what_the_plan_limits_and_what_is_known(
    tmp_path: Path, database_url: str | None
) -> None:
    clock = Clock()
    principal = a_principal(requests=300, tokens=100_000, concurrent=10, neurons=10_000.5)
    request = a_request(principal, prompt=900, answer=100)
    policy = (
        '"requests";q=300;w=60, "tokens";q=100000;w=60;qu="tokens", '
        '"concurrency";q=10;qu="concurrent-requests", "neurons";q=10000;w=86400;qu="neurons"'
    )
    async with edges(tmp_path, database_url, clock) as [limiter]:
        assert limiter.headers(principal, request.model) == {"ratelimit-policy": policy}
        async with limiter.admit(request):
            # a request of 300 is back in 0.2 s, a thousand tokens of 100,000 in 0.6 s
            assert limiter.headers(principal, request.model) == {
                "ratelimit-policy": policy,
                "ratelimit": '"requests";r=299;t=1, "tokens";r=99000;t=1, '
                '"concurrency";r=9, "neurons";r=10000;t=43200',
            }
        clock.advance(1)
        assert limiter.headers(principal, request.model)["ratelimit"] == (
            '"requests";r=300;t=0, "tokens";r=100000;t=0, "concurrency";r=10, '
            '"neurons";r=10000;t=43199'
        )
        assert limiter.headers(a_principal(), request.model) == {}
