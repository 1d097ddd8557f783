"""Versions, deployments and secrets over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.control_plane import ACME, ControlPlane, a_control_plane, an_upload
from tenantry_runtime.tenancy import Store


async def two_versions(plane: ControlPlane) -> tuple[str, str]:
    await plane.upload()
    await plane.upload("versions")
    newest, oldest = (await plane.ask("GET", "versions")).result["items"]
    return oldest["id"], newest["id"]


def a_deployment(*shares: tuple[str, float], **more: Any) -> dict[str, Any]:
    versions = [{"version_id": id, "percentage": percentage} for id, percentage in shares]
    return {"strategy": "percentage", "versions": versions, **more}


@pytest.mark.asyncio
async def test_requests_are_split_as_a_deployment_says(plane: ControlPlane) -> None:
    old, new = await two_versions(plane)

    made = await plane.ask("POST", "deployments", json=a_deployment((new, 25), (old, 75)))

    chosen = [
        (await plane.workers.resolve(ACME, "hello", entropy)).version_id
        for entropy in (0.0, 0.2499, 0.25, 0.9999)
    ]
    assert chosen == [new, new, old, old]
    assert made.result["versions"] == [
        {"version_id": new, "percentage": 25},
        {"version_id": old, "percentage": 75},
    ]


@pytest.mark.asyncio
async def test_the_first_of_the_deployments_is_in_force(plane: ControlPlane) -> None:
    old, new = await two_versions(plane)
    message = {"workers/message": "go"}
    await plane.ask("POST", "deployments", json=a_deployment((new, 100), annotations=message))
    await plane.ask("POST", "deployments", json=a_deployment((old, 100)))

    listed = (await plane.ask("GET", "deployments")).result["deployments"]

    assert [each["versions"][0]["version_id"] for each in listed] == [old, new, old]
    assert listed[1]["annotations"] == message
    assert listed[0]["annotations"] == {"workers/triggered_by": "rollback"}
    shown = await plane.ask("GET", f"deployments/{listed[1]['id']}")
    assert shown.result["id"] == listed[1]["id"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "percentages", [[50], [60, 60], [-1, 101], [100, 0, 0], []], ids=lambda each: str(each)
)
async def test_percentages_that_are_not_100_together_are_refused(
    plane: ControlPlane, percentages: list[float]
) -> None:
    ids = [*await two_versions(plane), "third"]

    made = await plane.ask(
        "POST", "deployments", json=a_deployment(*zip(ids, percentages, strict=False))
    )

    assert made.status == 400


@pytest.mark.asyncio
async def test_a_version_of_another_worker_cannot_be_deployed(plane: ControlPlane) -> None:
    await plane.upload()
    other = "/client/v4/accounts/acme/workers/scripts/other"

    await plane.ask("PUT", other, files=an_upload())
    (foreign,) = (await plane.ask("GET", f"{other}/versions")).result["items"]

    made = await plane.ask("POST", "deployments", json=a_deployment((foreign["id"], 100)))

    assert made.status == 404


@pytest.mark.asyncio
async def test_versions_are_listed_a_page_at_a_time(plane: ControlPlane) -> None:
    await two_versions(plane)

    pages = [
        await plane.ask("GET", "versions", params={"page": page, "per_page": 1})
        for page in (1, 2, 3)
    ]

    assert [[each["number"] for each in page.result["items"]] for page in pages] == [[2], [1], []]
    assert pages[0].body["result_info"]["total_count"] == 2


@pytest.mark.asyncio
async def test_the_newest_version_is_known_by_that_name(plane: ControlPlane) -> None:
    _, new = await two_versions(plane)

    shown = await plane.ask("GET", "/client/v4/accounts/acme/workers/workers/hello/versions/latest")

    assert shown.result["id"] == new


async def put_secret(plane: ControlPlane, name: str, text: str) -> Any:
    body = {"name": name, "text": text, "type": "secret_text"}
    return await plane.ask("PUT", "secrets", json=body)


async def secret_names(plane: ControlPlane) -> list[str]:
    return [each["name"] for each in (await plane.ask("GET", "secrets")).result]


async def values(plane: ControlPlane) -> dict[str, str]:
    version = await plane.workers.resolve(ACME, "hello", 0.0)
    found = await plane.workers.secrets.values(version)
    return {name: value.value for name, value in found.items()}


@pytest.mark.asyncio
async def test_a_secret_is_deployed_at_once_and_never_shown(plane: ControlPlane) -> None:
    await plane.upload()

    put = await put_secret(plane, "KEY", "hush-hush")

    assert put.result == {"name": "KEY", "type": "secret_text"}
    assert await values(plane) == {"KEY": "hush-hush"}
    for path in ("secrets", "secrets/KEY", "settings", "versions", "deployments"):
        assert b"hush-hush" not in (await plane.ask("GET", path)).response.content


@pytest.mark.asyncio
async def test_every_change_of_a_worker_is_told_to_what_serves_it_and_nothing_else_is(
    plane: ControlPlane,
) -> None:
    changed: list[str] = []
    plane.hear_changes(changed.append)
    changes = [
        plane.upload(),
        plane.upload("versions"),
        put_secret(plane, "KEY", "hush-hush"),
        plane.ask("PUT", "schedules", json=[{"cron": "* * * * *"}]),
        plane.ask("POST", "subdomain", json={"enabled": False}),
        plane.ask("DELETE", ""),
    ]
    for number, change in enumerate(changes, 1):
        await change
        assert changed == [ACME] * number
    await plane.ask("GET", "")
    await plane.ask("POST", "/client/v4/accounts/acme/storage/kv/namespaces", json={"title": "t"})
    assert len(changed) == len(changes)


@pytest.mark.asyncio
async def test_secrets_are_put_and_deleted_in_bulk(plane: ControlPlane) -> None:
    await plane.upload()
    await put_secret(plane, "OLD", "1")
    given = {"A": {"name": "A", "text": "a", "type": "secret_text"}, "OLD": None}

    changed = await plane.ask("PATCH", "secrets-bulk", json={"secrets": given})

    assert changed.status == 200
    assert await values(plane) == {"A": "a"}
    assert len((await plane.ask("GET", "versions")).result["items"]) == 3


@pytest.mark.asyncio
async def test_bindings_that_are_named_stay_when_settings_are_patched(plane: ControlPlane) -> None:
    await plane.upload(bindings=[{"name": "AI", "type": "ai"}])
    await put_secret(plane, "OLD", "1")
    bindings = (
        '{"bindings":[{"name":"AI","type":"ai"},{"name":"OLD","type":"secret_text"},'
        '{"name":"NEW","type":"secret_text","text":"2"}]}'
    )

    patched = await plane.ask("PATCH", "settings", files={"settings": (None, bindings)})

    assert [each["name"] for each in patched.result["bindings"]] == ["NEW", "AI", "OLD"]
    assert await values(plane) == {"OLD": "1", "NEW": "2"}


@pytest.mark.asyncio
async def test_a_rollback_brings_a_deleted_secret_back(plane: ControlPlane) -> None:
    await plane.upload()
    await put_secret(plane, "KEY", "1")
    (with_key, _) = (await plane.ask("GET", "versions")).result["items"]

    assert (await plane.ask("DELETE", "secrets/KEY")).status == 200
    assert await secret_names(plane) == []
    await plane.ask("POST", "deployments", json=a_deployment((with_key["id"], 100)))

    assert await values(plane) == {"KEY": "1"}


@pytest.mark.asyncio
async def test_a_secret_is_not_put_while_the_newest_version_waits(plane: ControlPlane) -> None:
    await two_versions(plane)

    put = await put_secret(plane, "KEY", "1")

    assert (put.status, put.code) == (400, 10215)
    assert await secret_names(plane) == []


@pytest.mark.asyncio
async def test_a_secret_that_is_not_there_cannot_be_deleted(plane: ControlPlane) -> None:
    await plane.upload()

    gone = await plane.ask("DELETE", "secrets/KEY")

    assert (gone.status, gone.code) == (404, 10056)


@pytest.mark.asyncio
async def test_a_secret_does_not_take_the_name_of_another_binding(plane: ControlPlane) -> None:
    await plane.upload(bindings=[{"name": "AI", "type": "ai"}])

    assert (await put_secret(plane, "AI", "1")).status == 400


@pytest.mark.asyncio
async def test_settings_stay_whatever_is_deployed(plane: ControlPlane) -> None:
    await plane.upload(observability={"enabled": True})

    patched = await plane.ask("PATCH", "script-settings", json={"tags": ["cf:service=x"]})
    await plane.upload()

    assert patched.result["tags"] == ["cf:service=x"]
    shown = (await plane.ask("GET", "script-settings")).result
    assert (shown["tags"], shown["observability"]) == (["cf:service=x"], {"enabled": True})


@pytest.mark.asyncio
async def test_a_worker_that_others_call_is_deleted_only_by_force(plane: ControlPlane) -> None:

    await plane.upload()
    binding = {"name": "S", "type": "service", "service": "hello"}
    caller = "/client/v4/accounts/acme/workers/scripts/caller"
    assert (await plane.ask("PUT", caller, files=an_upload(bindings=[binding]))).status == 200

    incoming = (await plane.ask("GET", "references")).result["services"]["incoming"]
    assert [each["service"] for each in incoming] == ["caller"]
    assert (await plane.ask("DELETE", "")).status == 409
    service = "/client/v4/accounts/acme/workers/services/hello?force=true"
    assert (await plane.ask("DELETE", service)).status == 200
    assert (await plane.ask("GET", "versions")).code == 10007


@pytest.mark.asyncio
async def test_the_whole_way_on_either_database(store: Store, tmp_path: Path) -> None:
    async with a_control_plane(store, tmp_path) as plane:
        await plane.upload(bindings=[{"name": "V", "type": "plain_text", "text": "1"}])
        await plane.upload("versions", keep_bindings=["plain_text"])
        new, old = (await plane.ask("GET", "versions")).result["items"]
        split = a_deployment((new["id"], 50), (old["id"], 50))
        assert (await plane.ask("POST", "deployments", json=split)).status == 200
        whole = a_deployment((new["id"], 100))
        assert (await plane.ask("POST", "deployments", json=whole)).status == 200
        assert (await put_secret(plane, "KEY", "hush")).status == 201
        await plane.ask("PUT", "schedules", json=[{"cron": "* * * * *"}])
        await plane.ask("PUT", "routes", json=[{"pattern": "acme.example/*"}])
        await plane.ask("PATCH", "script-settings", json={"observability": {"enabled": True}})

        assert await values(plane) == {"KEY": "hush"}
        assert [each.cron for each in await plane.workers.schedules()] == ["* * * * *"]
        assert await plane.workers.by_route("acme.example", "/") == (ACME, "hello")
        assert (await plane.ask("DELETE", "")).status == 200
        assert (await plane.ask("GET", "versions")).code == 10007
