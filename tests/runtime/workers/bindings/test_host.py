"""Bindings are the version's own; names and arguments reach nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.bindings import MODEL, OTHER_TENANT, TENANT, a_version, a_world
from support.byte_streams import Pieces
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.workers.interface import CallRefused
from tenantry_runtime.workers.spec import (
    AiBinding,
    JsonBinding,
    KvBinding,
    SecretBinding,
    TextBinding,
    VersionBinding,
)


@pytest.mark.asyncio
async def test_a_name_that_the_version_has_not_reaches_nothing(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        caller = world.caller(AiBinding(name="MODELS"), KvBinding(name="KV", namespace_id="x"))
        names = ["AI", "ai", "", "MODELS ", "KV2", "__class__", "../KV", "fetch", "\0", "x" * 1024]
        for name in names:
            body = Pieces(b"x")
            with pytest.raises(CallRefused, match="no binding"):
                await caller.call(name, "run", MODEL, {"prompt": "x"}, body=body)
            assert body.is_closed
        assert world.node.submits == []


@pytest.mark.asyncio
async def test_a_value_has_no_methods(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        caller = world.caller(
            TextBinding(name="T", text="x"),
            JsonBinding(name="J", json=[]),
            SecretBinding(name="S"),
            VersionBinding(name="V"),
        )
        for name in "TJSV":
            with pytest.raises(CallRefused, match="is a value"):
                await caller.call(name, "get", "k")


@pytest.mark.asyncio
async def test_whose_worker_calls_pays_whatever_its_arguments_say(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        mallory = world.caller(tenant=OTHER_TENANT)
        inputs = {"prompt": "x", "user": TENANT, "metadata": {"account": TENANT}}
        headers = {
            "authorization": "Bearer stolen",
            "x-tenantry-tenant": TENANT,
            "traceparent": "00-11111111111111111111111111111111-1111111111111111-01",
            "x-session-affinity": "s",
        }
        await mallory.run(inputs, {"extraHeaders": headers})

        [submit] = world.node.submits
        assert (submit.tenant, submit.session) == (OTHER_TENANT, "s")


@pytest.mark.asyncio
async def test_values_are_the_versions_variables_secrets_and_metadata(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        version = a_version(
            TextBinding(name="T", text="text"),
            JsonBinding(name="J", json={"a": [1]}),
            SecretBinding(name="S"),
            VersionBinding(name="V"),
            AiBinding(name="AI"),
        )
        world.secrets.known[version.version_id] = {"S": "hush", "OTHER": "not bound"}

        assert await world.bindings.values(version) == {
            "T": "text",
            "J": {"a": [1]},
            "S": "hush",
            # `created_ms` of support.bindings.a_version
            "V": {"id": version.version_id, "tag": "v1", "timestamp": "2027-01-01T12:00:00.123Z"},
        }


@pytest.mark.asyncio
async def test_a_secret_that_is_not_there_is_no_empty_one(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        with pytest.raises(ConfigurationError, match="the secret S"):
            await world.bindings.values(a_version(SecretBinding(name="S")))


@pytest.mark.asyncio
async def test_a_tenant_that_the_store_has_not_runs_nothing(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        nobody = world.caller(tenant=TenantId("nobody"))
        with pytest.raises(CallRefused, match="10000"):
            await nobody.run({"prompt": "x"})
