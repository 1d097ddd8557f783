"""Who may call the edge, and what others are told."""

from __future__ import annotations

import secrets
from pathlib import Path

import httpx
import pytest

from support.edge_process import a_scripted_node, an_edge_process
from support.edges import ACCOUNT, OTHER_ACCOUNT, RUN, SEARCH, Edge, an_edge, make_state
from support.plain_text import END
from support.postgresql import PostgresqlServer
from support.requests import a_body
from support.token_source import FakeTokenSource

COVERAGE = f"/client/v4/accounts/{ACCOUNT}/ai/coverage"


def told(response: httpx.Response) -> tuple[int, int, str]:
    [entry] = response.json()["errors"]
    return response.status_code, entry["code"], entry["message"]


async def ask(edge: Edge, path: str, token: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    async with edge.client() as client:
        if "/ai/run/" in path:
            return await client.post(path, content=a_body(), headers=headers)
        return await client.get(path, headers=headers)


@pytest.mark.asyncio
async def test_all_tokens_that_are_none_get_the_same_answer_and_headers(tmp_path: Path) -> None:
    state = await make_state(tmp_path / "state")
    async with an_edge(state, FakeTokenSource("4", END)) as edge:
        tokens = edge.services.store.tokens
        revoked = await tokens.create(ACCOUNT, name="t")
        await tokens.revoke(revoked.id)
        rotated = await tokens.create(ACCOUNT, name="t")
        await tokens.rotate(rotated.id, grace_ms=0)
        await edge.services.store.accounts.delete(OTHER_ACCOUNT)
        unknown = "tenantry_" + secrets.token_urlsafe(32)

        asked = {
            "unknown": (RUN, unknown),
            "revoked": (RUN, revoked.secret),
            "rotated": (RUN, rotated.secret),
            "of a deleted account": (RUN.replace(ACCOUNT, OTHER_ACCOUNT), state.other_token),
            "malformed": (RUN, "short"),
        }
        answers = {kind: await ask(edge, path, token) for kind, (path, token) in asked.items()}

    first = answers["unknown"]
    assert told(first) == (401, 10000, "Authentication error")
    assert first.headers["www-authenticate"] == "Bearer"
    for kind, response in answers.items():
        assert (response.status_code, response.content) == (401, first.content), kind
        # each request has an id of its own
        assert {**response.headers, "cf-ai-req-id": ""} == {**first.headers, "cf-ai-req-id": ""}


@pytest.mark.asyncio
@pytest.mark.parametrize("path", [RUN, SEARCH, COVERAGE])
async def test_a_token_for_other_work_is_forbidden(tmp_path: Path, path: str) -> None:
    state = await make_state(tmp_path / "state")
    async with an_edge(state, FakeTokenSource("4", END)) as edge:
        tokens = edge.services.store.tokens
        deploying = (await tokens.create(ACCOUNT, name="t", scopes=["deploy"])).secret
        ruling = (await tokens.create(ACCOUNT, name="t", scopes=["admin"])).secret

        assert told(await ask(edge, path, deploying)) == (403, 10000, "Authentication error")
        assert (await ask(edge, path, ruling)).status_code == 200


@pytest.mark.asyncio
@pytest.mark.parametrize("path", [RUN, SEARCH, COVERAGE])
async def test_a_suspended_account_is_blocked(tmp_path: Path, path: str) -> None:
    state = await make_state(tmp_path / "state")
    async with an_edge(state, FakeTokenSource("4", END)) as edge:
        await edge.services.store.accounts.suspend(ACCOUNT)

        # the code is Cloudflare's for a blocked account
        assert told(await ask(edge, path, state.token)) == (403, 3023, "This account is suspended")


@pytest.mark.asyncio
@pytest.mark.postgresql
async def test_an_edge_says_that_its_database_is_away_and_serves_when_it_is_back(
    postgresql: PostgresqlServer, postgresql_url: str, tmp_path: Path
) -> None:
    async with (
        an_edge_process(tmp_path, store=postgresql_url) as edge,
        edge.client() as client,
        a_scripted_node(tmp_path, "Hello there"),
    ):
        await edge.log.says("connected to node")
        body = a_body(max_tokens=1)
        assert (await client.post(RUN, content=body)).status_code == 200

        postgresql.stop()
        try:
            refused = await client.post(RUN, content=body)
            listing = await client.get(SEARCH)
            is_ready = await client.get("/ready")
        finally:
            postgresql.start()

        for response in (refused, listing):
            assert told(response) == (503, 7009, "Upstream service unavailable")
            assert response.headers["retry-after"] == "1"
        assert (is_ready.status_code, is_ready.json()["store"]) == (503, False)
        assert (await client.get("/ready")).status_code == 200
        assert (await client.post(RUN, content=body)).status_code == 200
    assert "Traceback" not in edge.log.text
    assert edge.log.text.count("the store does not answer") == 1
    assert edge.log.text.count("the store answers again") == 1


@pytest.mark.asyncio
@pytest.mark.postgresql
async def test_edges_that_share_a_database_share_its_tokens(
    postgresql_url: str, tmp_path: Path
) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    async with (
        an_edge_process(tmp_path / "a", store=postgresql_url) as one,
        an_edge_process(tmp_path / "b", store=postgresql_url) as other,
        other.client() as client,
    ):
        headers = {"authorization": f"Bearer {one.state.token}"}
        assert (await client.get(SEARCH, headers=headers)).status_code == 200
