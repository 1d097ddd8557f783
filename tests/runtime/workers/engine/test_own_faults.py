"""What is the runtime's own fault is told as that: to its operator, and never as the worker's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from support.worker_isolates import (
    FakeBindings,
    FakeNursery,
    Records,
    a_version,
    an_engine,
    ask,
    failure,
)
from tenantry_runtime.errors import SecretKeyMissing
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerVersion

pytestmark = pytest.mark.asyncio


async def test_a_machine_that_makes_no_isolates_is_the_runtime_s_fault_not_the_worker_s() -> None:
    nursery, version = FakeNursery(), a_version()
    nursery.problem = "no more processes"
    async with an_engine(nursery) as engine:
        assert (await failure(engine, version)).outcome is Outcome.INTERNAL
        nursery.problem = None
        assert (await ask(engine, version)).status == 200


async def test_secrets_that_cannot_be_opened_are_the_runtime_s_fault_and_told_to_its_operator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Locked(FakeBindings):
        async def values(self, version: WorkerVersion) -> Mapping[str, object]:
            raise SecretKeyMissing("acme", "API_KEY", "k1", "secrets.key")

    version, records = a_version(), Records()
    async with an_engine(FakeNursery(), bindings=Locked(), records=records) as engine:
        assert (await failure(engine, version)).outcome is Outcome.INTERNAL
    (record,) = records.records
    assert [error.message for error in record.errors] == ["the worker could not be read"]
    assert "add that key there" in caplog.text
