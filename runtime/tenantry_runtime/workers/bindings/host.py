"""The one place where a worker's call becomes somebody's work.

A binding's name is looked up in the version that calls, and nowhere else; what it leads to, and for
whom, is in that version and in the context, never in the call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, assert_never

import anyio

from tenantry_runtime.edge.internal import InternalRuns
from tenantry_runtime.edge.services import Services
from tenantry_runtime.workers.interface import (
    FETCH,
    ByteStream,
    CallContext,
    CalledEngine,
    CallRefused,
    HttpResponse,
    StreamResult,
)
from tenantry_runtime.workers.spec import (
    AiBinding,
    Binding,
    JsonBinding,
    KvBinding,
    SecretBinding,
    ServiceBinding,
    TextBinding,
    VersionBinding,
    WorkerVersion,
)

from .ai import AiCalls
from .arguments import shown, wrong_type
from .kv import KvCalls
from .outbound.client import OutboundClient, open_outbound
from .outbound.config import OutboundConfig
from .outbound.connect import Resolve
from .services import ServiceCalls, Versions
from .values import SecretValues, values_of


class HostBindings:
    """Answers calls of all workers. `interface.Bindings`; made by `open_bindings`."""

    def __init__(
        self,
        *,
        ai: AiCalls,
        kv: KvCalls,
        services: ServiceCalls,
        outbound: OutboundClient,
        secrets: SecretValues,
    ) -> None:
        self._ai = ai
        self._kv = kv
        self._services = services
        self._outbound = outbound
        self._secrets = secrets

    def attach(self, engine: CalledEngine) -> None:
        """Say who runs the workers that workers call; before the first of them runs."""
        self._services.engine = engine

    async def values(self, version: WorkerVersion) -> Mapping[str, object]:
        """Return what is a value in `env`, as `interface.Bindings.values` says."""
        return await values_of(version, self._secrets)

    async def call(
        self,
        context: CallContext,
        binding: str,
        method: str,
        args: Sequence[Any],
        body: ByteStream | None,
    ) -> object | HttpResponse | StreamResult:
        """Answer a call, as `interface.Bindings.call` says. The body is closed when it has been read."""
        try:
            if binding == FETCH:
                return await self._outbound.call(context, method, args, body)
            found = _find(context.version, binding)
            match found:
                case AiBinding():
                    return await self._ai.call(context, method, args, body)
                case KvBinding():
                    return await self._kv.call(context, found, method, args, body)
                case ServiceBinding():
                    # whom it is handed to closes it: it may be read after the answer has begun
                    handed, body = body, None
                    return await self._services.call(context, found, method, args, handed)
                case TextBinding() | JsonBinding() | SecretBinding() | VersionBinding():
                    raise wrong_type(f"env.{found.name} is a value, and has no methods")
                case _:
                    assert_never(found)
        finally:
            if body is not None:
                with anyio.CancelScope(shield=True):
                    await body.aclose()


def _find(version: WorkerVersion, name: str) -> Binding:
    for binding in version.bindings:
        if binding.name == name:
            return binding
    raise CallRefused("Error", f"this version of the worker has no binding {shown(name)}")


@asynccontextmanager
async def open_bindings(
    services: Services,
    *,
    versions: Versions,
    secrets: SecretValues,
    outbound: OutboundConfig | None = None,
    resolve: Resolve | None = None,
) -> AsyncIterator[HostBindings]:
    """Open what answers workers' calls at an edge; leaving ends all of it.

    `resolve` looks names up for outbound requests; None: as the machine does.
    """
    problem: Exception | None = None
    async with (
        open_outbound(outbound or OutboundConfig(), resolve=resolve) as client,
        anyio.create_task_group() as tasks,
    ):
        bindings = HostBindings(
            ai=AiCalls(services, InternalRuns(services, tasks)),
            kv=KvCalls(services.store.kv),
            services=ServiceCalls(versions, tasks),
            outbound=client,
            secrets=secrets,
        )
        try:
            yield bindings
        except Exception as error:
            # out of the group as it is, not wrapped in an exception group
            problem = error
        tasks.cancel_scope.cancel()
    if problem is not None:
        raise problem
