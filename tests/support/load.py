"""Many tenants with several streams each, through the SDK, and what it took to serve them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import anyio

from support.conversations import Tenant
from support.edge_process import EdgeProcess
from tenantry import AsyncAI

PATIENT_RETRIES = 1000
"""A refusal for lack of room is none here: the client comes back until it is served."""

TIMEOUT_S = 120.0


@dataclass(slots=True, eq=False, kw_only=True)
class Stream:
    """One request of a tenant, and what came of it."""

    tenant: Tenant
    prompt: str
    text: str = ""
    finish_reason: str | None = None
    completion_tokens: int = 0
    ended_s: float = 0.0
    """Since all of them began."""


@dataclass(slots=True, eq=False, kw_only=True)
class Load:
    """Streams that begin as soon as they may, through one client for each tenant."""

    edge: EdgeProcess
    model: str
    max_tokens: int
    streams: Sequence[Stream]
    at_once: float = inf
    """Streams that are under way at any time, at most."""
    num_refusals: int = 0
    _begun_s: float = 0.0
    _limiter: anyio.CapacityLimiter = field(init=False)

    async def run(self) -> None:
        """Return when each has been answered."""
        by_tenant: dict[Tenant, list[Stream]] = {}
        for stream in self.streams:
            by_tenant.setdefault(stream.tenant, []).append(stream)
        self._begun_s = time.monotonic()
        self._limiter = anyio.CapacityLimiter(self.at_once)
        async with anyio.create_task_group() as tasks:
            for tenant, streams in by_tenant.items():
                tasks.start_soon(self._run_tenant, tenant, streams)

    async def _run_tenant(self, tenant: Tenant, streams: Sequence[Stream]) -> None:
        async with (
            AsyncAI(
                base_url=f"{self.edge.url}/client/v4",
                account_id=tenant.account,
                api_token=tenant.token,
                timeout=TIMEOUT_S,
                max_retries=PATIENT_RETRIES,
                sleep=self._wait,
            ) as ai,
            anyio.create_task_group() as tasks,
        ):
            for stream in streams:
                tasks.start_soon(self._run, ai, stream)

    async def _wait(self, seconds: float) -> None:
        self.num_refusals += 1
        await anyio.sleep(seconds)

    async def _run(self, ai: AsyncAI, stream: Stream) -> None:
        inputs = {"prompt": stream.prompt, "max_tokens": self.max_tokens, "temperature": 0.0}
        async with self._limiter, await ai.run(self.model, inputs, stream=True) as chunks:
            async for chunk in chunks:
                for choice in chunk.choices:
                    delta = choice.delta
                    stream.text += (delta.reasoning_content or "") + (delta.content or "")
                    stream.finish_reason = choice.finish_reason or stream.finish_reason
                if chunk.usage is not None:
                    stream.completion_tokens = chunk.usage.completion_tokens
        stream.ended_s = time.monotonic() - self._begun_s


def resident_mib(pid: int) -> float:
    """Return how much memory of a process is in use."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(fields["VmRSS"].split()[0]) / 1024


def num_sockets(pid: int) -> int:
    """Return how many sockets a process has open."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        # it may be closed while it is looked at
        with suppress(FileNotFoundError):
            count += str(entry.readlink()).startswith("socket:")
    return count
