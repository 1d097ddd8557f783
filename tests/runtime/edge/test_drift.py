"""Answers are compared with what a prefill member says at the same places, and nobody else notices."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
import torch

from support.engine import a_submit, an_engine, expected_answer
from support.engine_source import EngineSource
from support.fake_decoder import FakeCache, FakeDecoder
from support.plain_text import KIMI
from tenantry_runtime.background import background_tasks
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.core import Sampling
from tenantry_runtime.edge.config import DriftConfig
from tenantry_runtime.edge.drift import MAX_AGE_S, MAX_WAITING, DriftWatch, Outcome
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.models.batch import ForwardBatch
from tenantry_runtime.pool.messages import Submit

MODEL = KIMI.id
ALL = DriftConfig(share=1.0, places=1000)


class CoarseDecoder(FakeDecoder):
    """Says something else of some tokens where it is given one alone, as in a decode step."""

    def __init__(self, coarse: frozenset[int]) -> None:
        super().__init__()
        self._coarse = torch.tensor(sorted(coarse), dtype=torch.int64)

    def forward(self, batch: ForwardBatch, checked: CheckedBatch, cache: FakeCache) -> torch.Tensor:
        hidden_RH = super().forward(batch, checked, cache)
        if len(batch.token_ids_T) > len(batch.cu_len) - 1:
            return hidden_RH
        is_coarse_R = torch.isin(batch.token_ids_T, self._coarse)[batch.logit_rows_R]
        return torch.where(is_coarse_R[:, None], hidden_RH.flip(1), hidden_RH)


@dataclass
class Judged:
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    models: set[str] = field(default_factory=set)
    awaited: int = 0
    has_all: anyio.Event = field(default_factory=anyio.Event)

    def drifted(self, model: str, outcome: Outcome) -> None:
        self.models.add(model)
        self.outcomes[outcome] += 1
        if self.outcomes.total() >= self.awaited:
            self.has_all.set()


@asynccontextmanager
async def watching(
    node: EngineSource, judged: Judged, config: DriftConfig = ALL
) -> AsyncIterator[tuple[DriftWatch, Nodes]]:
    nodes = Nodes([node])
    watch = DriftWatch(nodes, config, judged, rng=random.Random(1))
    async with background_tasks() as tasks:
        tasks.start_soon(watch.run)
        yield watch, nodes


async def answer_of(node: EngineSource, submit: Submit) -> list[int]:
    told: list[int] = []
    async with node.generate(submit) as sequence:
        async for tokens in sequence:
            told += tokens.token_ids
            if tokens.finish is not None:
                break
    return told


def a_request(seed: int, **sampling: Any) -> Submit:
    return a_submit(
        f"r{seed}",
        model=MODEL,
        prompt=[3, 5, 7 + seed],
        max_tokens=80,
        stop_token_ids=(),
        sampling=Sampling(seed=seed, **sampling),
    )


SAMPLINGS = [
    {"temperature": 0.0},
    {"temperature": 1.0, "top_k": 8},
    {"temperature": 0.7, "frequency_penalty": 0.3, "repetition_penalty": 1.2},
]


@pytest.mark.asyncio
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "drawn", "with penalties"])
async def test_where_the_formats_say_the_same_every_token_is_the_same(
    sampling: dict[str, Any],
) -> None:
    node = EngineSource(an_engine(models=(MODEL,)))
    submit = a_request(1, **sampling)
    output = await answer_of(node, submit)
    judged = Judged(awaited=79)
    async with watching(node, judged) as (watch, _):
        watch.answered(submit, output)
        await judged.has_all.wait()
    assert judged.outcomes == {"same": 79}
    assert judged.models == {MODEL}


@pytest.mark.asyncio
async def test_tokens_that_a_decode_member_says_otherwise_are_found_each() -> None:
    coarse = frozenset(range(0, 24, 5))
    node = EngineSource(an_engine(models=(MODEL,), decoder=CoarseDecoder(coarse)))
    submit = a_request(2, temperature=0.0)
    output = await answer_of(node, submit)
    judged = Judged(awaited=79)
    async with watching(node, judged) as (watch, _):
        watch.answered(submit, output)
        await judged.has_all.wait()
    # greedily another row of logits means another token, but for one in as many as there are
    num_coarse = sum(token in coarse for token in output[:-1])
    assert 0 < judged.outcomes["other"] <= num_coarse
    assert judged.outcomes["other"] >= num_coarse - 2
    assert judged.outcomes["same"] == 79 - judged.outcomes["other"]


@pytest.mark.asyncio
async def test_it_is_asked_in_the_background_as_the_tenants_own_and_in_no_account() -> None:
    node = EngineSource(an_engine(models=(MODEL,)))
    submit = a_request(3, temperature=0.0)
    output = await answer_of(node, submit)
    judged = Judged(awaited=5)
    config = DriftConfig(share=1.0, places=5)
    async with watching(node, judged, config) as (watch, nodes):
        before = nodes.router.lengths.expected(submit.tenant, MODEL, None)
        watch.answered(submit, output)
        await judged.has_all.wait()
        assert nodes.router.lengths.expected(submit.tenant, MODEL, None) == before
    _, *asked = node.submits
    places = [each.num_generated for each in asked]
    assert places == sorted(set(places)) and len(places) == 5
    assert all(0 < place < len(output) for place in places), "the first is the prefill's anyway"
    for each in asked:
        assert each.tenant == submit.tenant and each.is_background
        assert (each.max_tokens, each.session, each.traceparent) == (1, None, "")
        assert each.token_ids == [*submit.token_ids, *output[: each.num_generated]]
    assert len({each.request_id for each in (submit, *asked)}) == 6


@pytest.mark.asyncio
async def test_a_node_that_fails_leaves_the_token_unknown_and_the_watch_going() -> None:
    node = EngineSource(an_engine(models=(MODEL,), decoder=FakeDecoder(fatal_token=11)))
    bad = a_submit("bad", model=MODEL, prompt=[11, 3], max_tokens=4)
    good = a_submit("good", model=MODEL, prompt=[2, 3], max_tokens=4, stop_token_ids=())
    judged = Judged(awaited=4)
    async with watching(node, judged, DriftConfig(share=1.0, places=2)) as (watch, _):
        watch.answered(bad, [4, 5, 6])
        told = expected_answer(good)[:3]
        assert 11 not in told
        watch.answered(good, told)
        await judged.has_all.wait()
    assert judged.outcomes == {"unknown": 2, "same": 2}
    # each is tried once: what fails is nobody's to be tried again for
    assert sum(each.token_ids[0] == 11 for each in node.submits) == 2


@pytest.mark.asyncio
async def test_a_share_of_answers_is_looked_at_and_no_more_wait_than_may() -> None:
    watch = DriftWatch(Nodes([]), DriftConfig(share=0.25), Judged(), rng=random.Random(5))
    few = [watched(watch, [1, 2]) for _ in range(100)]
    assert 15 <= sum(few) <= 35
    assert not any(watched(watch, output) for output in ([], [1]) for _ in range(50))
    sure = DriftWatch(Nodes([]), DriftConfig(share=1.0), Judged())
    assert sum(watched(sure, [1, 2]) for _ in range(2 * MAX_WAITING)) == MAX_WAITING


@pytest.mark.asyncio
async def test_what_has_waited_too_long_is_forgotten() -> None:
    now_s = 0.0
    node = EngineSource(an_engine(models=(MODEL,)))
    judged = Judged(awaited=1)
    watch = DriftWatch(
        Nodes([node]), DriftConfig(share=1.0, places=1), judged, clock_s=lambda: now_s
    )
    old = a_submit("old", model=MODEL, prompt=[2, 3], max_tokens=4)
    new = a_submit("new", model=MODEL, prompt=[4, 5], max_tokens=4)
    watch.answered(old, [6, 7])
    now_s += MAX_AGE_S + 1
    watch.answered(new, [6, 7])
    async with background_tasks() as tasks:
        tasks.start_soon(watch.run)
        await judged.has_all.wait()
    assert [each.token_ids for each in node.submits] == [[4, 5, 6]]


def watched(watch: DriftWatch, output: Sequence[int]) -> bool:
    before = watch.num_waiting
    watch.answered(a_submit(), output)
    return watch.num_waiting > before
