"""Calls of bindings, held to what one invocation may make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio

from tenantry_runtime.workers.byte_streams import HeldStream
from tenantry_runtime.workers.interface import (
    FETCH,
    Bindings,
    ByteStream,
    CallContext,
    CallRefused,
    HttpResponse,
    StreamResult,
)


class Calls:
    """The calls of one invocation, or of an isolate outside of any."""

    __slots__ = ("_bindings", "_connections", "_context", "_num_left")

    def __init__(self, bindings: Bindings, context: CallContext) -> None:
        self._bindings = bindings
        self._context = context
        self._num_left = context.version.limits.subrequests
        # few invocations call out, so that it is made when one does
        self._connections: anyio.Semaphore | None = None

    async def call(
        self, binding: str, method: str, args: Sequence[Any], body: ByteStream | None
    ) -> object | HttpResponse | StreamResult:
        """Answer one. Raises `CallRefused`, also for one too many."""
        if self._num_left <= 0:
            most = self._context.version.limits.subrequests
            problem = f"Too many subrequests: an invocation of this worker may make {most}."
            raise CallRefused("Error", problem)
        self._num_left -= 1
        if binding != FETCH:
            return await self._bindings.call(self._context, binding, method, args, body)
        if self._connections is None:
            self._connections = anyio.Semaphore(self._context.version.limits.connections)
        connections = self._connections
        await connections.acquire()
        try:
            answer = await self._bindings.call(self._context, binding, method, args, body)
        except BaseException:
            connections.release()
            raise
        if isinstance(answer, HttpResponse) and not isinstance(answer.body, bytes):
            return replace(answer, body=HeldStream(answer.body, connections.release))
        connections.release()
        return answer
