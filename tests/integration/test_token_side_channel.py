"""Whoever tries tokens learns nothing but that they are not good: not that one of them once was."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import sqlalchemy as sa
from starlette.types import Message

from support.classifiers import best_attack
from support.edges import ACCOUNT, OTHER_ACCOUNT, RUN, Edge, an_edge, make_state
from support.requests import a_body
from support.token_source import FakeTokenSource
from tenantry_runtime.tenancy import TOKEN_PREFIX, schema

NUM_TRIALS = 2000
"""Of each kind."""

NUM_TOKENS = 50
"""Of each kind that the store knows."""

MAX_AUC = 0.55

KINDS = ("unknown", "malformed", "revoked", "expired", "of a deleted account")


class Answer(NamedTuple):
    """What whoever tries a token is told, but for what differs from request to request."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Tokens:
    """Tokens that are not good, each for another reason."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._known: dict[str, list[str]] = {}

    async def make(self) -> None:
        """Have all in the store that it is to know, among as many others."""
        store = self._edge.services.store
        ids: dict[str, list[str]] = {}
        for account in (ACCOUNT, "gone"):
            await store.create_account(account)
        for kind in ("good", "revoked", "expired", "of a deleted account"):
            account = "gone" if kind.startswith("of") else ACCOUNT
            made = [await store.create_token(account, name=kind) for _ in range(NUM_TOKENS)]
            self._known[kind] = [token.secret for token in made]
            ids[kind] = [token.id for token in made]
        tokens, accounts = schema.tokens, schema.accounts
        async with store.database.begin() as connection:
            for kind, column in (("revoked", "revoked_ms"), ("expired", "expires_ms")):
                ended = sa.update(tokens).where(tokens.c.id.in_(ids[kind]))
                await connection.execute(ended.values({column: 1}))
            gone = sa.update(accounts).where(accounts.c.id == "gone")
            await connection.execute(gone.values(deleted_ms=1))

    def draw(self, kind: str, rng: random.Random) -> str:
        match kind:
            case "unknown":
                return TOKEN_PREFIX + secrets.token_urlsafe(32)
            case "malformed":
                return "sk-" + secrets.token_urlsafe(34)
            case _:
                return rng.choice(self._known[kind])


@asynccontextmanager
async def an_edge_with_tokens(directory: Path) -> AsyncIterator[tuple[Edge, Tokens]]:
    async with an_edge(await make_state(directory), FakeTokenSource("x")) as edge:
        tokens = Tokens(edge)
        await tokens.make()
        yield edge, tokens


async def attempt(edge: Edge, token: str, account: str = ACCOUNT) -> tuple[float, Answer]:
    """Call the application itself: nothing of a network is between."""
    path = RUN.replace(f"/{ACCOUNT}/", f"/{account}/")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {token}".encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": a_body(), "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    started_s = time.perf_counter()
    await edge.app(scope, receive, send)
    took_s = time.perf_counter() - started_s
    headers = tuple(
        (name, value)
        for name, value in sent[0]["headers"]
        if name not in (b"date", b"cf-ai-req-id")
    )
    body = b"".join(message["body"] for message in sent[1:])
    return took_s, Answer(sent[0]["status"], headers, body)


@pytest.mark.asyncio
async def test_every_bad_token_is_answered_in_the_same_words(tmp_path: Path) -> None:
    rng = random.Random(1)
    async with an_edge_with_tokens(tmp_path) as (edge, tokens):
        answers = {kind: (await attempt(edge, tokens.draw(kind, rng)))[1] for kind in KINDS}
        for kind, token in (("empty", ""), ("not ASCII", TOKEN_PREFIX + "ä")):
            answers[kind] = (await attempt(edge, token))[1]

    assert set(answers.values()) == {answers["unknown"]}
    assert answers["unknown"].status == 401


@pytest.mark.asyncio
async def test_a_good_token_is_told_the_same_of_accounts_that_exist_and_that_do_not(
    tmp_path: Path,
) -> None:
    async with an_edge_with_tokens(tmp_path) as (edge, _):
        answers = {
            (await attempt(edge, edge.state.token, account))[1]
            for account in (OTHER_ACCOUNT, "gone", "nobody", ACCOUNT.upper(), ACCOUNT + "x")
        }

    (answer,) = answers
    assert answer.status == 403


@pytest.mark.asyncio
@pytest.mark.timing
async def test_a_bad_token_takes_as_long_as_any_other(tmp_path: Path) -> None:
    rng = random.Random(2)
    order = np.array([rng.sample(KINDS, len(KINDS)) for _ in range(NUM_TRIALS)]).ravel()
    async with an_edge_with_tokens(tmp_path) as (edge, tokens):
        tried = [tokens.draw(kind, rng) for kind in order]
        # the first ones pay for what is made once
        for token in tried[:200]:
            await attempt(edge, token)
        took = [(await attempt(edge, token))[0] for token in tried]

    seen = np.array(took)[:, None]
    for kind in KINDS[1:]:
        which = np.isin(order, ["unknown", kind])
        found = best_attack(seen[which], order[which] == kind)
        print(kind, {name: str(attack) for name, attack in found.items()})
        assert max(attack.upper for attack in found.values()) <= MAX_AUC, (kind, found)
