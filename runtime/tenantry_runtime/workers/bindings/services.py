"""Service bindings: other workers of the same tenant, called by request or by method.

| in a call | is |
|---|---|
| the worker, its entrypoint | what the version's own binding says |
| the version that answers | what of the worker is deployed now |
| trace, session, client | the caller's; where spans are recorded, the call's own (`traced_calls.py`) |
| depth | one more than the caller's |
"""

from __future__ import annotations

import logging
import random
import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import TenantryError
from tenantry_runtime.workers.byte_streams import HeldStream
from tenantry_runtime.workers.interface import (
    ByteStream,
    CallContext,
    CalledEngine,
    CallRefused,
    HttpRequest,
    HttpResponse,
    Invocation,
    WorkerFailed,
)
from tenantry_runtime.workers.spec import ServiceBinding, WorkerVersion

from .arguments import Arguments, mapping_of, shown, wrong_type
from .outbound.request import check_all_headers, check_url, without_hops

MAX_DEPTH = 16
"""Of workers that call workers."""

_METHOD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")

_HANDLERS = frozenset(
    (
        "alarm",
        "connect",
        "constructor",
        "dup",
        "email",
        "queue",
        "scheduled",
        "tail",
        "tailStream",
        "test",
        "trace",
        "webSocketClose",
        "webSocketError",
        "webSocketMessage",
    )
)
"""Methods of an entrypoint that the runtime calls, and nobody else."""

_log = logging.getLogger(__name__)


class Versions(Protocol):
    """Knows what answers for a worker."""

    async def resolve(self, account: TenantId, worker: str, entropy: float) -> WorkerVersion:
        """Return a version; `entropy` is from 0 (included) to 1 (not) and says whose share it is.

        Raises `NoSuchRecord`, `AccountSuspended`.
        """
        ...


class ServiceCalls:
    """Answers calls of all workers' `service` bindings."""

    def __init__(self, versions: Versions, tasks: TaskGroup) -> None:
        """`tasks` run the workers that are called, as long as somebody reads what they answer."""
        self.engine: CalledEngine | None = None
        """Who runs them; set before the first worker runs."""
        self._versions = versions
        self._tasks = tasks

    async def call(
        self,
        context: CallContext,
        binding: ServiceBinding,
        method: str,
        args: Sequence[Any],
        body: ByteStream | None,
    ) -> object | HttpResponse:
        """Answer one, as `interface.Bindings.call` says; the body is this one's to close."""
        visit: _Visit | None = None
        try:
            if method != "fetch":
                return await self._rpc(context, binding, method, args)
            request = _request(Arguments(f"{binding.name}.fetch", args, at_most=4), body)
            engine, version, invocation = await self._callee(context, binding)
            visit = _Visit(partial(engine.fetch, version, request, invocation), body)
        finally:
            if visit is None:
                await _close(body)
        self._tasks.start_soon(visit.run)
        try:
            return await visit.response()
        except anyio.get_cancelled_exc_class():
            visit.leave()
            raise

    async def _rpc(
        self, context: CallContext, binding: ServiceBinding, method: str, args: Sequence[Any]
    ) -> object:
        called = Arguments(f"{binding.name}.{method[:128]}", args, at_most=2)
        if _METHOD.fullmatch(method) is None or method in _HANDLERS:
            raise _no_method(method)
        positional = called.value(0) or []
        if not isinstance(positional, list):
            raise wrong_type(f"{called.call}: the arguments must be a list")
        named = mapping_of(called.value(1), f"{called.call}: the named arguments")
        engine, version, invocation = await self._callee(context, binding)
        try:
            return await engine.rpc(version, method, positional, named, invocation)
        except WorkerFailed as failed:
            raise _refusal(failed) from failed

    async def _callee(
        self, context: CallContext, binding: ServiceBinding
    ) -> tuple[CalledEngine, WorkerVersion, Invocation]:
        if context.invocation.depth >= MAX_DEPTH:
            raise CallRefused(
                "Error",
                "Subrequest depth limit exceeded. This request recursed through Workers too many "
                "times. This can happen e.g. if you have a Worker that calls itself.",
            )
        if self.engine is None:
            raise CallRefused("Error", "workers are not running yet")
        try:
            # the tenant is the caller's own, whatever it calls its service
            version = await self._versions.resolve(context.tenant, binding.service, random.random())
        except TenantryError as error:
            problem = f"the service {binding.service!r} cannot be called: {error}"
            raise CallRefused("Error", problem) from error
        caller = context.invocation
        invocation = replace(
            caller,
            id=str(uuid.uuid4()),
            entrypoint=binding.entrypoint,
            depth=caller.depth + 1,
        )
        return self.engine, version, invocation


class _Visit:
    """One request of a worker to another, in a task of its own until its answer has been read."""

    def __init__(
        self,
        enter: Callable[[], AbstractAsyncContextManager[HttpResponse]],
        body: ByteStream | None,
    ) -> None:
        """`body` is the request's, which is closed when the visit ends."""
        self._enter = enter
        self._body = body
        self._response: HttpResponse | None = None
        self._problem: CallRefused | None = None
        self._waiting = anyio.CancelScope()
        self._has_answered = anyio.Event()
        self._is_left = anyio.Event()

    async def run(self) -> None:
        try:
            # an answer that nobody waits for any more is not waited for
            with self._waiting:
                async with self._enter() as response:
                    self._response = response
                    self._has_answered.set()
                    if not isinstance(response.body, bytes):
                        await self._is_left.wait()
        except WorkerFailed as failed:
            self._problem = _refusal(failed)
        except Exception:
            # a bug is an answer too: others' calls run in the same task group
            _log.exception("a call of a service failed")
            self._problem = CallRefused("Error", "internal error")
        finally:
            self._has_answered.set()
            await _close(self._body)

    async def response(self) -> HttpResponse:
        await self._has_answered.wait()
        if self._response is None:
            raise self._problem or CallRefused("Error", "this runtime is ending")
        if isinstance(self._response.body, bytes):
            return self._response
        return replace(self._response, body=HeldStream(self._response.body, self.leave))

    def leave(self) -> None:
        self._is_left.set()
        if self._response is None:
            self._waiting.cancel()


async def _close(body: ByteStream | None) -> None:
    if body is not None:
        with anyio.CancelScope(shield=True):
            await body.aclose()


def _request(args: Arguments, body: ByteStream | None) -> HttpRequest:
    inline: Any = args.value(3)
    if isinstance(inline, str):
        inline = inline.encode("utf-8", "replace")
    if inline is not None and not isinstance(inline, bytes):
        raise wrong_type(f"{args.call}: the body must be bytes, not {shown(inline)}")
    method = args.text(0, "the method")
    if re.fullmatch(r"[A-Za-z]{1,40}", method) is None:
        raise wrong_type(f"{args.call}: {shown(method)} is no method")
    url = args.text(1, "the URL")
    check_url(url)
    headers = without_hops(check_all_headers(args.value(2)))
    return HttpRequest(
        method=method.upper(), url=url, headers=headers, body=inline if body is None else body
    )


def _no_method(method: str) -> CallRefused:
    return wrong_type(f"The RPC receiver does not implement the method {shown(method)}.")


def _refusal(failed: WorkerFailed) -> CallRefused:
    return CallRefused("Error", failed.message)
