"""Where tails are listened to: a port of its own, with WebSockets of the subprotocol `trace-v1`.

It is not the edge's port: wrangler's first frame has no mask, and the edge's HTTP server rightly ends such
a connection. The path ends with the tail's id, which nobody guesses and only its maker was told; wrangler
sends no token with it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream, TaskGroup

from tenantry_runtime.background import background_tasks
from tenantry_runtime.errors import ConfigurationError

from .broker import Tail, TailBroker
from .websocket import (
    GOING_AWAY,
    Closed,
    Refused,
    WebSocket,
    accepting,
    read_handshake,
    refusing,
)

SUBPROTOCOL = "trace-v1"
PATH_PREFIX = "/tails/"

MAX_CONNECTIONS = 1000
"""More wait to be accepted."""
ACCEPT_PAUSE_S = 0.1
"""After a connection that could not be accepted, as where the process has no file descriptor left."""
HANDSHAKE_S = 10.0
STALL_S = 30.0
"""A client that takes nothing for so long is given up."""
PING_S = 25.0
"""Less than proxies keep a connection that is silent."""
SILENCE_S = 80.0
"""A client that has answered none of three pings is gone."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_tail_listener(broker: TailBroker, host: str, port: int = 0) -> AsyncIterator[int]:
    """Serve tails for the duration of the context; return the port, which 0 leaves to the system.

    Raises `ConfigurationError` for an address that is taken or not ours.
    """
    try:
        listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    except OSError as error:
        problem = f"cannot listen for tails on {host}:{port}: {error.strerror or error}"
        raise ConfigurationError(problem) from error
    places = anyio.Semaphore(MAX_CONNECTIONS)
    try:
        async with background_tasks() as tasks:
            for each in listener.listeners:
                assert isinstance(each, SocketListener)
                tasks.start_soon(accept_all, each, broker, places, tasks)
            yield listener.extra(SocketAttribute.local_port)
    finally:
        await listener.aclose()


class Accepting(Protocol):
    """A socket that listens."""

    async def accept(self) -> SocketStream:
        """Return the next connection; raises `OSError`."""
        ...


async def accept_all(
    listener: Accepting, broker: TailBroker, places: anyio.Semaphore, tasks: TaskGroup
) -> None:
    """Accept connections for ever, none before there is a place for it."""

    async def serve(stream: SocketStream) -> None:
        try:
            async with stream:
                await _serve(broker, stream)
        except Exception:
            # the outermost place: one listener's fault ends no others
            _log.exception("a tail was lost")
        finally:
            places.release()

    while True:
        await places.acquire()
        try:
            stream = await listener.accept()
        except OSError as error:
            places.release()
            _log.error("a connection for a tail cannot be accepted: %s", error)
            await anyio.sleep(ACCEPT_PAUSE_S)
        else:
            tasks.start_soon(serve, stream)


async def _serve(broker: TailBroker, stream: SocketStream) -> None:
    # messages are whole, and few: one that waits for the next to fill a packet is late
    stream.extra(SocketAttribute.raw_socket).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with anyio.move_on_after(HANDSHAKE_S) as patience:
        try:
            handshake, rest = await read_handshake(stream)
            tail = _find(broker, handshake.path)
        except Refused as refused:
            await _send(stream, refusing(refused.status))
            return
    if patience.cancelled_caught:
        return
    # before the client knows, which then misses nothing
    tail.is_connected = True
    try:
        if await _send(stream, accepting(handshake, SUBPROTOCOL)):
            await _tell(tail, WebSocket(stream, rest))
    finally:
        # a client that wants another asks for another
        broker.close(tail.id)


def _find(broker: TailBroker, path: str) -> Tail:
    tail = broker.find(path.removeprefix(PATH_PREFIX)) if path.startswith(PATH_PREFIX) else None
    if tail is None or tail.is_connected:
        raise Refused(404)
    return tail


async def _send(stream: SocketStream, response: bytes) -> bool:
    try:
        with anyio.fail_after(STALL_S):
            await stream.send(response)
    except (anyio.BrokenResourceError, TimeoutError):
        return False
    return True


async def _tell(tail: Tail, websocket: WebSocket) -> None:
    code: int | None = GOING_AWAY
    async with anyio.create_task_group() as tasks:

        async def hear() -> None:
            nonlocal code
            try:
                while True:
                    with anyio.fail_after(SILENCE_S):
                        await websocket.hear()
            except Closed as closed:
                code = closed.code
            except TimeoutError:
                code = None
            tasks.cancel_scope.cancel()

        async def ask() -> None:
            nonlocal code
            while True:
                await anyio.sleep(PING_S)
                try:
                    with anyio.fail_after(STALL_S):
                        await websocket.ping()
                except (Closed, TimeoutError):
                    code = None
                    tasks.cancel_scope.cancel()

        tasks.start_soon(hear)
        tasks.start_soon(ask)
        try:
            while (message := await tail.next()) is not None:
                with anyio.fail_after(STALL_S):
                    await websocket.tell(message)
        except (Closed, TimeoutError):
            code = None
        tasks.cancel_scope.cancel()
    if code is not None:
        with anyio.move_on_after(1):
            await websocket.close(code)
