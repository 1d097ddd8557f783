"""Many tenants who ask at the same time, over HTTP, and what each is told."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx

from support.cluster import KIMI
from support.edge_process import EdgeProcess
from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    account: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request of a tenant."""

    tenant: Tenant
    prompt: str
    max_tokens: int = 48
    seed: int = 0
    temperature: float = 0.0
    session: str | None = None
    model: str = KIMI


@dataclass(slots=True, eq=False, kw_only=True)
class Told:
    """What came of a request."""

    text: str = ""
    """Reasoning and content, as they came."""
    status: int = 0
    error: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    is_whole: bool = False
    """`[DONE]` came."""


async def make_tenants(edge: EdgeProcess, count: int) -> list[Tenant]:
    """Create accounts in the edge's store."""
    tenants = []
    async with open_store(edge.state.directory) as store:
        for number in range(count):
            account = TenantId(f"tenant-{number}")
            await store.create_account(account)
            token = await store.create_token(account, name="test")
            tenants.append(Tenant(account=account, token=token.secret))
    return tenants


async def ask_all(edge: EdgeProcess, asks: Sequence[Ask]) -> list[Told]:
    """Send all requests at once; return what each was told, in their order."""
    told = [Told() for _ in asks]
    limits = httpx.Limits(max_connections=len(asks) + 1)
    async with (
        httpx.AsyncClient(base_url=edge.url, timeout=120, limits=limits) as client,
        anyio.create_task_group() as tasks,
    ):
        for ask, one in zip(asks, told, strict=True):
            tasks.start_soon(ask_one, client, ask, one)
    return told


async def ask_one(client: httpx.AsyncClient, ask: Ask, told: Told) -> None:
    """Stream one answer into `told`."""
    headers = {"authorization": f"Bearer {ask.tenant.token}"}
    if ask.session is not None:
        headers["x-session-affinity"] = ask.session
    body = {
        "prompt": ask.prompt,
        "stream": True,
        "max_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "seed": ask.seed,
    }
    path = f"/client/v4/accounts/{ask.tenant.account}/ai/run/{ask.model}"
    async with client.stream("POST", path, json=body, headers=headers) as response:
        told.status = response.status_code
        if response.status_code != 200:
            told.error = (await response.aread()).decode()
            return
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                _take(told, line.removeprefix("data: "))


def _take(told: Told, data: str) -> None:
    if data == "[DONE]":
        told.is_whole = True
        return
    event = json.loads(data)
    if "error" in event:
        told.error = event["error"]["message"]
        return
    told.usage = event.get("usage") or told.usage
    for choice in event["choices"]:
        delta = choice["delta"]
        told.text += (delta.get("reasoning_content") or "") + (delta.get("content") or "")


_WORDS = ("apple", "river", "stone", "lamp", "music", "window", "garden", "paper", "cloud", "bread")


def prompts(seed: int, count: int, *, longest: int = 300) -> list[str]:
    """Make texts of up to some hundred words; some begin with the same sentences."""
    rng = random.Random(seed)
    shared = [_sentence(rng, longest // 2) for _ in range(3)]
    texts = []
    for number in range(count):
        lead = f"{rng.choice(shared)} " if rng.random() < 0.4 else ""
        texts.append(f"{lead}{_sentence(rng, rng.randint(3, longest))} What is {number} + 25?")
    return texts


def _sentence(rng: random.Random, num_words: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(num_words)) + "."
