from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from support.operating import Operator
from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import open_store
from tenantry_runtime.tenancy.batches import BatchRequest

MODEL = "@cf/zai-org/glm-5.2"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(state_dir=tmp_path)


async def _submit(state_dir: Path) -> str:
    async with open_store(state_dir) as store:
        await store.create_account(TenantId("acme"))
        token = await store.create_token("acme", name="test")
        requests = [BatchRequest(body=b'{"prompt": "secret words"}')] * 3
        return await store.batches.submit("acme", token.id, MODEL, requests)


def submit(operator: Operator) -> str:
    return anyio.run(_submit, operator.state_dir)


def test_batches_are_listed_with_how_far_they_are(operator: Operator) -> None:
    batch_id = submit(operator)
    header, line = (line.split() for line in operator.does("batch", "list").splitlines())
    assert header[:6] == ["BATCH", "TENANT", "MODEL", "STATUS", "DONE", "OF"]
    assert line[:6] == [batch_id, "acme", MODEL, "queued", "0", "3"]
    assert operator.json("batch", "list", "nobody") == []


def test_one_is_shown_without_what_it_asks(operator: Operator) -> None:
    batch_id = submit(operator)
    assert operator.json("batch", "show", batch_id)["status"] == "queued"
    shown = operator.does("batch", "show", batch_id)
    assert batch_id in shown
    assert "secret" not in shown
    assert "no batch 'x'" in operator.fails("batch", "show", "x")


def test_a_canceled_one_is_complete(operator: Operator) -> None:
    batch_id = submit(operator)
    assert operator.does("batch", "cancel", batch_id) == "canceled 3 requests\n"
    assert operator.json("batch", "show", batch_id)["status"] == "complete"
    assert operator.does("batch", "cancel", batch_id) == "canceled 0 requests\n"
    assert "there is no batch 'x'" in operator.fails("batch", "cancel", "x")
