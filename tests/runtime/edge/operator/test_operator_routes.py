"""The operator's routes: who gets in, and what is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import msgspec
import pytest

from support.edges import ACCOUNT, Edge, State, an_edge
from support.ledgers import a_record
from support.token_source import FakeTokenSource
from tenantry_runtime.core import TenantId, Usage
from tenantry_runtime.edge.app import build_app
from tenantry_runtime.edge.operator import Operating, OperatorAccess, operator_routes
from tenantry_runtime.edge.operator.report import Overview
from tenantry_runtime.pool.messages import (
    Incident,
    NodeStatistics,
    OpCoverage,
    ServiceReport,
    TenantService,
)
from tenantry_runtime.pool.page_map import PageMap, PageMaps
from tenantry_runtime.pool.pool_report import PoolReport
from tenantry_runtime.telemetry.metrics import Ended, NodeMetrics, RequestMeter, metering
from tenantry_runtime.tenancy import IncidentKind, IncidentRecord
from tenantry_runtime.tenancy.incidents import integrity_record
from tenantry_runtime.tenancy.ledger.recording import record_usage

OPERATOR = TenantId("ops")
POOL = PoolReport(
    model="@cf/moonshotai/kimi-k2.6",
    phases=("prefill", "decode"),
    pages={"free": 50, "private": 30, "shared": 15, "quiescing": 5, "quarantined": 0},
    tenant_pages={ACCOUNT: 40, "other": 10},
    num_running=3,
    num_waiting=2,
    num_prompt_tokens=200,
    num_cached_tokens=50,
)

COVERAGE = tuple(
    OpCoverage(op=op, format="bf16", device="cpu", is_on=is_on)
    for op, is_on in (("decode read", True), ("chunk read", False))
)


class Operated:
    """An edge with an operator, and clients of it."""

    def __init__(self, edge: Edge, app: object, token: str) -> None:
        self.edge = edge
        self._app = app
        self.token = token

    def client(self, token: str | None = None) -> httpx.AsyncClient:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(self._app)  # type: ignore[arg-type]
        return httpx.AsyncClient(transport=transport, base_url="http://edge", headers=headers)

    async def get(self, path: str) -> httpx.Response:
        async with self.client(self.token) as client:
            return await client.get(path)


@asynccontextmanager
async def operated(state: State) -> AsyncIterator[Operated]:
    async with an_edge(state, FakeTokenSource("a", coverage=COVERAGE)) as edge:
        services = edge.services
        await services.store.create_account(OPERATOR)
        made = await services.store.create_token(OPERATOR, name="ops", scopes=["admin"])
        node = services.nodes.all[0].address
        accounts = (TenantService(ACCOUNT, 1, 30.0), TenantService("other", 1, 10.0))
        services.nodes.reported(
            node,
            NodeStatistics(
                loop_turn_ns=1,
                num_running=3,
                num_waiting=2,
                num_free_pages={},
                services=(
                    ServiceReport(
                        model=POOL.model, phases=POOL.phases, number=1, accounts=accounts
                    ),
                ),
                pools=(POOL,),
            ),
        )
        with metering({}, is_scraped=True) as meters:
            NodeMetrics(services.nodes).register(meters.meter)
            requests = RequestMeter(meters.meter)
            usage = Usage(prompt_tokens=10, completion_tokens=5)
            requests.ended(
                Ended(
                    operation="chat",
                    model=POOL.model,
                    tenant=ACCOUNT,
                    duration_s=1.0,
                    first_token_s=0.2,
                    usage=usage,
                    error=None,
                )
            )
            access = OperatorAccess(services.authenticator, OPERATOR)
            operating = Operating(services, access, meters, requests.recent)
            app = build_app(services, operator_routes(operating))
            yield Operated(edge, app, made.secret)


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/metrics", "/operator/overview", "/console", "/console/pages"])
async def test_tenants_get_in_nowhere_not_even_their_admins(state: State, path: str) -> None:
    async with operated(state) as here:
        store = here.edge.services.store
        admin = await store.create_token(TenantId(ACCOUNT), name="a", scopes=["admin"])
        runner = await store.create_token(OPERATOR, name="r", scopes=["run"])
        for token in (None, state.token, admin.secret, runner.secret, "tenantry_nothing"):
            async with here.client(token) as client:
                response = await client.get(path)
            assert response.status_code in (401, 403)
            assert POOL.model not in response.text


@pytest.mark.asyncio
async def test_metrics_are_scraped_with_the_operators_token(state: State) -> None:
    async with operated(state) as here:
        response = await here.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    assert "tenantry_sequences{" in response.text
    assert "gen_ai_server_time_to_first_token_seconds_bucket" in response.text


@pytest.mark.asyncio
async def test_the_overview_has_what_nodes_tenants_and_the_store_say(state: State) -> None:
    async with operated(state) as here:
        incident = Incident(
            time_s=1_700_000_000.0,
            model=POOL.model,
            request_id="r",
            tenant=ACCOUNT,
            step=4,
            op="decode read",
            logical_page=0,
            page=7,
            found=("tag",),
        )
        await here.edge.services.store.incidents.record([integrity_record("node", 1, incident)])
        response = await here.get("/operator/overview")
        found = msgspec.json.decode(response.content, type=Overview)
    [node] = found.nodes
    assert node.is_up and node.pools == (POOL,)
    assert [(each.tenant, each.service, each.num_pages) for each in found.tenants] == [
        (ACCOUNT, 30.0, 40),
        ("other", 10.0, 10),
    ]
    [shown] = found.incidents
    assert (shown.kind, shown.tenants, shown.began_ms) == (
        "integrity",
        (ACCOUNT,),
        1_700_000_000_000,
    )
    assert "decode read" in shown.detail
    slices = found.latencies[POOL.model]
    assert slices[-1]["first_token_s"] == [0.2] * 3
    # (1.0 - 0.2) / 4
    assert slices[-1]["per_token_s"] == pytest.approx([0.2] * 3)
    assert sum(each["num_requests"] for each in slices) == 1


@pytest.mark.asyncio
async def test_usage_is_that_of_today_and_the_dearest_tenants_first(state: State) -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    day_ms = 86_400_000
    async with operated(state) as here:
        await here.edge.services.store.create_account(TenantId("other"))
        records = [
            a_record("r-1", ended_ms=now_ms, output=9, tenant="other"),
            a_record("r-2", ended_ms=now_ms, output=9, tenant=ACCOUNT),
            a_record("r-3", ended_ms=now_ms, output=20, tenant=ACCOUNT),
            a_record("r-4", ended_ms=now_ms - day_ms, output=50, tenant="other"),
        ]
        await record_usage(here.edge.services.store.database, records)
        response = await here.get("/operator/overview")
        page = (await here.get("/console")).text
    usage = msgspec.json.decode(response.content, type=Overview).usage
    assert [(each.tenant, each.requests, each.output_tokens) for each in usage] == [
        (ACCOUNT, 2, 29),
        ("other", 1, 9),
    ]
    assert (usage[0].input_tokens, usage[0].cached_tokens) == (200, 128)
    # pico-dollars
    assert usage[0].usd == pytest.approx((records[1].cost + records[2].cost) / 1e12)
    assert f"{usage[0].usd:.4f}" in page


@pytest.mark.asyncio
async def test_the_console_names_what_is_not_checked(state: State) -> None:
    async with operated(state) as here:
        page = (await here.get("/console")).text
    assert "1 of 2 ops" in page
    unchecked = [line for line in page.split("<li") if "not checked" in line]
    assert unchecked and all("chunk read" in line for line in unchecked)


@pytest.mark.asyncio
async def test_a_browser_logs_in_once_and_out_again(state: State) -> None:
    async with operated(state) as here, here.client() as browser:
        assert (await browser.get("/console")).status_code == 401
        wrong = await browser.post("/console/login", data={"token": state.token})
        assert (wrong.status_code, "no admin token" in wrong.text) == (401, True)

        entered = await browser.post("/console/login", data={"token": here.token})
        assert (entered.status_code, entered.headers["location"]) == (303, "/console")
        cookie = entered.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/console"))
        page = await browser.get("/console")
        assert page.status_code == 200
        assert all(word in page.text for word in (POOL.model, "30 private", "75.0%", "50.0%"))
        assert "no-store" in page.headers["cache-control"]

        await browser.post("/console/logout")
        assert (await browser.get("/console")).status_code == 401


@pytest.mark.asyncio
async def test_the_console_shows_incidents_of_all_kinds(state: State) -> None:
    async with operated(state) as here:
        lasting = IncidentRecord(
            id="i1",
            kind=IncidentKind.NODE_LOST,
            began_ms=1_700_000_000_000,
            seen_ms=1_700_000_000_000,
            node="unix:gone.sock",
            detail="Socket closed",
        )
        over = replace(
            lasting,
            id="i2",
            kind=IncidentKind.QUOTA_STORM,
            ended_ms=1_700_000_100_000,
            tenants=("acme", "bolt"),
            detail="<i>120</i> requests refused",
        )
        await here.edge.services.store.incidents.record([lasting, over])
        page = (await here.get("/console")).text
    rows = [row for row in page.split("<tr>") if "node_lost" in row or "quota_storm" in row]
    [lost] = [row for row in rows if "node_lost" in row]
    [storm] = [row for row in rows if "quota_storm" in row]
    assert all(text in lost for text in ("unix:gone.sock", "Socket closed", "not yet"))
    assert all(text in storm for text in ("acme, bolt", "&lt;i&gt;120&lt;/i&gt; requests refused"))
    assert "not yet" not in storm


@pytest.mark.asyncio
async def test_nothing_that_a_tenant_names_is_markup_on_the_page(state: State) -> None:
    async with operated(state) as here:
        incident = Incident(
            time_s=1_700_000_000.0,
            model="<script>alert(1)</script>",
            request_id="r",
            tenant="<b>t</b>",
            step=1,
            op="decode read",
            logical_page=None,
            page=None,
            found=("tag",),
        )
        await here.edge.services.store.incidents.record([integrity_record("node", 1, incident)])
        page = (await here.get("/console")).text
    assert "<script>alert" not in page and "<b>t</b>" not in page
    assert "&lt;script&gt;alert" in page


@pytest.mark.asyncio
async def test_a_login_that_is_no_form_is_refused_before_it_is_read(state: State) -> None:
    async with operated(state) as here, here.client() as browser:
        response = await browser.post("/console/login", content=b"x" * 100_000)
        assert response.status_code == 413


@pytest.mark.asyncio
async def test_maps_of_pages_name_owners_and_nodes_that_do_not_answer(state: State) -> None:
    async with operated(state) as here:
        [node] = here.edge.services.nodes.all
        assert isinstance(node, FakeTokenSource)
        pool = PageMap(
            model="kimi",
            phases=("decode",),
            states=bytes([0, 1, 2, 3]),
            owners=bytes([0, 2, 2, 3]),
            tenants=("acme", "<b>olt"),
        )
        node.page_maps = PageMaps(pools=(pool,))
        page = (await here.get("/console/pages")).text
    assert "4 pages" in page and "acme" in page and "&lt;b&gt;olt" in page
    assert "data:image/png;base64," in page
