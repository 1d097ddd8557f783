"""Workers that call their bindings, without isolates: versions, contexts, and what answers them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from support.edges import ACCOUNT, OTHER_ACCOUNT, Edge, an_edge, make_state
from support.plain_text import END
from support.token_source import FakeTokenSource
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.errors import NoSuchRecord
from tenantry_runtime.tenancy.ledger import open_ledger
from tenantry_runtime.tenancy.secrets import Plaintext
from tenantry_runtime.workers.bindings import HostBindings, OutboundConfig, open_bindings
from tenantry_runtime.workers.bindings.outbound.connect import Resolve
from tenantry_runtime.workers.interface import (
    ByteStream,
    CallContext,
    HttpResponse,
    Invocation,
    StreamResult,
)
from tenantry_runtime.workers.spec import AiBinding, Binding, WorkerVersion

TENANT, OTHER_TENANT = TenantId(ACCOUNT), TenantId(OTHER_ACCOUNT)
MODEL = "@cf/moonshotai/kimi-k2.6"

TRACE = "0af7651916cd43dd8448eb211c80319c"
INVOCATION = Invocation(
    id="8d0b5c1e-0000-4000-8000-000000000001", traceparent=f"00-{TRACE}-b7ad6b7169203331-01"
)


def a_version(
    *bindings: Binding, worker: str = "caller", tenant: TenantId = TENANT
) -> WorkerVersion:
    return WorkerVersion(
        tenant=tenant,
        worker=worker,
        version_id=f"version-of-{worker}",
        number=1,
        main_module="entry.py",
        files=(),
        bindings=bindings,
        created_ms=1_798_804_800_123,
        tag="v1",
    )


@dataclass(slots=True)
class Versions:
    """Knows workers by tenant and name."""

    known: list[WorkerVersion] = field(default_factory=list)

    async def resolve(self, account: TenantId, worker: str, entropy: float) -> WorkerVersion:
        assert 0 <= entropy < 1
        for version in self.known:
            if (version.tenant, version.worker) == (account, worker):
                return version
        raise NoSuchRecord("worker", worker)


@dataclass(slots=True)
class Secrets:
    """Knows secrets by their versions' ids and their names."""

    known: dict[str, dict[str, str]] = field(default_factory=dict)

    async def values(self, version: WorkerVersion) -> Mapping[str, Plaintext]:
        mine = self.known.get(version.version_id, {})
        return {name: Plaintext(value) for name, value in mine.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A worker in an invocation, as its isolate is heard."""

    bindings: HostBindings
    context: CallContext

    async def call(
        self, binding: str, method: str, *args: Any, body: ByteStream | None = None
    ) -> Any:
        return await self.bindings.call(self.context, binding, method, list(args), body)

    async def run(self, inputs: Any, options: Any = None, **more: Any) -> Any:
        return await self.call("AI", "run", MODEL, inputs, options or {}, **more)

    def with_(self, **changes: Any) -> Caller:
        """Return the same worker, of whose context or invocation something differs."""
        of_context = {
            name: changes.pop(name) for name in ("version", "deadline_s") if name in changes
        }
        invocation = replace(self.context.invocation, **changes)
        context = replace(self.context, invocation=invocation, **of_context)
        return replace(self, context=context)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """An edge, and what answers its workers."""

    edge: Edge
    bindings: HostBindings
    node: FakeTokenSource
    versions: Versions
    secrets: Secrets

    def caller(self, *bindings: Binding, tenant: TenantId = TENANT) -> Caller:
        version = a_version(*(bindings or (AiBinding(name="AI"),)), tenant=tenant)
        context = CallContext(version=version, invocation=INVOCATION)
        return Caller(bindings=self.bindings, context=context)


@asynccontextmanager
async def a_world(
    folder: Path,
    node: FakeTokenSource | None = None,
    *,
    limits: Limits | None = None,
    outbound: OutboundConfig | None = None,
    resolve: Resolve | None = None,
    has_ledger: bool = False,
    **edge_options: Any,
) -> AsyncIterator[World]:
    state = await make_state(folder / "state")
    node = node or FakeTokenSource("an answer", END)
    versions, secrets = Versions(), Secrets()
    async with AsyncExitStack() as stack:
        edge = await stack.enter_async_context(an_edge(state, node, limits=limits, **edge_options))
        if has_ledger:
            opened = open_ledger(edge.services.store.database, folder / "journal", max_open=10)
            ledger = await stack.enter_async_context(opened)
            edge = replace(edge, services=replace(edge.services, ledger=ledger))
        opening = open_bindings(
            edge.services,
            versions=versions,
            secrets=secrets,
            outbound=outbound,
            resolve=resolve,
        )
        bindings = await stack.enter_async_context(opening)
        yield World(edge=edge, bindings=bindings, node=node, versions=versions, secrets=secrets)


async def whole(answer: object) -> bytes:
    """Read all of a stream, or of a response's body."""
    match answer:
        case HttpResponse(body=bytes() as body):
            return body
        case HttpResponse(body=stream) | StreamResult(stream=stream):
            return b"".join([piece async for piece in stream])  # type: ignore[union-attr]
    raise AssertionError(answer)


def chunks(printed: bytes) -> Sequence[Any]:
    """Read server-sent events; `[DONE]` stays text."""
    bodies = [each.removeprefix("data: ") for each in printed.decode().split("\n\n") if each]
    return [body if body == "[DONE]" else json.loads(body) for body in bodies]
