"""URLs, routes, cron triggers, tails, and who may ask."""

from __future__ import annotations

import pytest

from support.control_plane import ACME, GLOBEX, SCRIPT, ControlPlane

ROOT = "/client/v4"


@pytest.mark.asyncio
async def test_a_worker_answers_at_its_name_once_it_is_said_to(plane: ControlPlane) -> None:
    await plane.upload()

    before = (await plane.ask("GET", "subdomain")).result
    after = (await plane.ask("POST", "subdomain", json={"enabled": True})).result

    assert before == {"enabled": False, "previews_enabled": False}
    assert after == {"enabled": True, "previews_enabled": False}
    assert (await plane.workers.current(ACME, "hello")).worker.has_url


@pytest.mark.asyncio
async def test_the_accounts_subdomain_is_its_id(plane: ControlPlane) -> None:
    path = f"{ROOT}/accounts/acme/workers/subdomain"

    assert (await plane.ask("GET", path)).result == {"subdomain": "acme"}
    assert (await plane.ask("PUT", path, json={"subdomain": "other"})).status == 400


@pytest.mark.asyncio
async def test_schedules_are_replaced_as_a_whole(plane: ControlPlane) -> None:
    await plane.upload()
    await plane.ask("PUT", "schedules", json=[{"cron": "0 * * * *"}, {"cron": "1 * * * *"}])

    await plane.ask("PUT", "schedules", json=[{"cron": "*/5  * * * *"}, {"cron": "1 * * * *"}])

    shown = (await plane.ask("GET", "schedules")).result["schedules"]
    assert {each["cron"] for each in shown} == {"*/5 * * * *", "1 * * * *"}
    due = await plane.workers.schedules()
    assert {(each.account, each.worker, each.cron) for each in due} == {
        ("acme", "hello", "*/5 * * * *"),
        ("acme", "hello", "1 * * * *"),
    }


@pytest.mark.asyncio
@pytest.mark.parametrize("cron", ["", "* * * *", "61 * * * *", "* * * * * *", "@daily", "x" * 999])
async def test_what_is_no_cron_expression_is_refused(plane: ControlPlane, cron: str) -> None:
    await plane.upload()

    put = await plane.ask("PUT", "schedules", json=[{"cron": cron}])

    assert put.status == 400
    assert await plane.workers.schedules() == []


@pytest.mark.asyncio
async def test_routes_lead_to_the_worker(plane: ControlPlane) -> None:
    await plane.upload()

    put = await plane.ask("PUT", "routes", json=[{"pattern": "shop.acme.example/api*"}])

    assert put.status == 200
    assert await plane.workers.by_route("shop.acme.example", "/api/x") == ("acme", "hello")
    assert await plane.workers.by_route("shop.acme.example", "/") is None


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "pattern",
    ["globex.localhost/*", "example.com/*", "notacme.example/*", "*/*", "localhost/client/v4*"],
)
async def test_a_route_at_somebody_elses_domain_is_refused(
    plane: ControlPlane, pattern: str
) -> None:
    await plane.upload()

    put = await plane.ask("PUT", "routes", json=[{"pattern": pattern}])

    assert (put.status, put.code) == (400, 10020)


@pytest.mark.asyncio
async def test_custom_domains_are_routes_to_the_whole_host(plane: ControlPlane) -> None:
    await plane.upload()
    await plane.ask("PUT", "routes", json=[{"pattern": "a.acme.example/x"}])

    await plane.ask("PUT", "domains/records", json={"origins": [{"hostname": "b.acme.example"}]})

    assert await plane.workers.by_route("b.acme.example", "/y") == ("acme", "hello")
    assert await plane.workers.by_route("a.acme.example", "/x") == ("acme", "hello")


@pytest.mark.asyncio
async def test_zones_are_the_accounts_domains(plane: ControlPlane) -> None:
    await plane.upload()
    path = f"{ROOT}/zones/acme.example/workers/routes"

    zones = await plane.ask("GET", f"{ROOT}/zones", params={"name": "acme.example"})
    added = await plane.ask("POST", path, json={"pattern": "acme.example/*", "script": "hello"})
    listed = (await plane.ask("GET", path)).result
    deleted = await plane.ask("DELETE", f"{path}/{added.result['id']}")

    assert [zone["id"] for zone in zones.result] == ["acme.example"]
    assert listed == [added.result] and added.result["script"] == "hello"
    assert deleted.status == 200 and (await plane.ask("GET", path)).result == []
    assert (await plane.ask("GET", path, token=GLOBEX)).status == 404


@pytest.mark.asyncio
async def test_a_tail_is_made_and_ended(plane: ControlPlane) -> None:
    await plane.upload()

    made = await plane.ask("POST", "tails", json={"filters": [{"outcome": ["ok"]}]})
    ended = await plane.ask("DELETE", f"tails/{made.result['id']}")

    assert made.result["url"].startswith("ws://edge/")
    assert plane.tails.asked == [({"outcome": ["ok"]},)]
    assert ended.status == 200 and not plane.tails.open_tails
    assert (await plane.ask("DELETE", f"tails/{made.result['id']}")).status == 404


@pytest.mark.asyncio
async def test_a_tail_needs_no_body_and_a_worker(plane: ControlPlane) -> None:
    missing = await plane.ask("POST", "tails")
    await plane.upload()

    assert (missing.status, missing.code) == (404, 10007)
    assert (await plane.ask("POST", "tails")).status == 200


@pytest.mark.asyncio
@pytest.mark.parametrize("token", ["run", GLOBEX])
async def test_a_token_of_another_scope_or_account_changes_nothing(
    plane: ControlPlane, token: str
) -> None:
    for method, path in [("PUT", SCRIPT), ("GET", f"{SCRIPT}/secrets"), ("DELETE", SCRIPT)]:
        refused = await plane.ask(method, path, token=token)
        assert (refused.status, refused.code) == (403, 10000)


@pytest.mark.asyncio
@pytest.mark.parametrize("token", ["run", ACME])
async def test_any_token_is_told_whose_it_is(plane: ControlPlane, token: str) -> None:
    user = (await plane.ask("GET", f"{ROOT}/user", token=token)).result
    accounts = await plane.ask("GET", f"{ROOT}/accounts", token=token)
    members = (await plane.ask("GET", f"{ROOT}/memberships", token=token)).result

    assert user["email"] == "acme@localhost"
    assert [each["id"] for each in accounts.result] == ["acme"]
    assert accounts.body["result_info"]["total_count"] == 1
    assert members[0]["account"]["id"] == "acme"
    assert (await plane.ask("GET", f"{ROOT}/user/tokens/verify", token=token)).result[
        "status"
    ] == "active"


@pytest.mark.asyncio
async def test_a_token_that_is_none_is_told_nothing(plane: ControlPlane) -> None:
    headers = {"authorization": "Bearer tenantry_x"}

    refused = await plane.ask("GET", f"{ROOT}/user", headers=headers)

    assert (refused.status, refused.code) == (401, 10000)


@pytest.mark.asyncio
@pytest.mark.parametrize(("path", "named"), [("r2/buckets/b", "R2"), ("queues", "Queues")])
async def test_a_product_that_there_is_not_is_named(
    plane: ControlPlane, path: str, named: str
) -> None:
    refused = await plane.ask("GET", f"{ROOT}/accounts/acme/{path}")

    assert (refused.status, refused.code) == (404, 7000)
    assert refused.message.startswith(f"there is no product {named!r}; ")
