"""Blank isolates are kept ready, replaced when they are taken or die, and made when there are none."""

from __future__ import annotations

import pytest

from support.worker_isolates import FakeNursery, a_version, an_engine, ask
from tenantry_runtime.workers.engine import EngineConfig, Exit, TemplateKey
from tenantry_runtime.workers.spec import WorkerLimits

pytestmark = pytest.mark.asyncio

TWO = EngineConfig(blank_isolates=2, blank_isolates_each=1)


async def test_as_many_blank_isolates_as_are_kept_are_there_before_anybody_asks() -> None:
    nursery = FakeNursery()
    async with an_engine(nursery, config=TWO) as engine:
        await engine.filled()
        assert (len(nursery.isolates), engine.statistics().num_blank) == (2, 2)


async def test_a_start_takes_a_blank_isolate_and_another_takes_its_place() -> None:
    nursery = FakeNursery()
    async with an_engine(nursery, config=TWO) as engine:
        await engine.filled()
        first = nursery.isolates[0]
        version = a_version()
        await ask(engine, version)
        assert first.version is version
        await engine.filled()
        assert (len(nursery.isolates), engine.statistics().num_blank) == (3, 2)


async def test_a_version_with_another_memory_limit_gets_an_isolate_made_for_it() -> None:
    nursery = FakeNursery()
    async with an_engine(nursery, config=TWO) as engine:
        await engine.filled()
        await ask(engine, a_version(limits=WorkerLimits(memory_bytes=256 << 20)))
        assert [isolate.version is None for isolate in nursery.isolates] == [True, True, False]


async def test_a_blank_isolate_that_dies_is_replaced() -> None:
    nursery = FakeNursery()
    async with an_engine(nursery, config=TWO) as engine:
        await engine.filled()
        nursery.isolates[0].process.end(Exit(signal=9))
        version = a_version()
        await ask(engine, version)
        assert nursery.isolates[1].version is version
        await engine.filled()
        assert engine.statistics().num_blank == 2


async def test_dependencies_have_blank_isolates_of_their_own_once_they_were_asked_for() -> None:
    nursery = FakeNursery()
    async with an_engine(nursery, config=TWO) as engine:
        await engine.filled()
        await ask(engine, a_version(dependencies="numpy"))
        await engine.filled()
        await ask(engine, a_version(dependencies="numpy"))
    base, numpy = TemplateKey(), TemplateKey("numpy")
    assert nursery.keys[:4] == [base, base, numpy, numpy]


async def test_tenants_share_no_template_where_the_operator_asks_for_it() -> None:
    nursery = FakeNursery()
    config = EngineConfig(share_templates=False, blank_isolates_each=0)
    async with an_engine(nursery, config=config) as engine:
        await ask(engine, a_version(tenant="mine"))
        await ask(engine, a_version(tenant="theirs"))
    assert nursery.keys == [TemplateKey("", "mine"), TemplateKey("", "theirs")]


async def test_what_nobody_has_asked_for_in_long_keeps_no_blank_isolates() -> None:
    nursery = FakeNursery()
    config = EngineConfig(blank_isolates=0, blank_isolates_each=1, template_idle_s=1e-6)
    async with an_engine(nursery, config=config) as engine:
        await ask(engine, a_version(dependencies="numpy"))
        await engine.filled()
        assert engine.statistics().num_blank == 1
        await engine.tidy()
        assert engine.statistics().num_blank == 0
