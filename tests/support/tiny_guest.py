"""A guest that executes what it is sent: one packet of code in, one line of what it got out.

Standard library only: it runs inside an isolate. A packet is a length of four bytes, big-endian, and
source code whose name `result` is answered as `repr` has it, or how it raised.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn


def preload() -> None:
    """Nothing that an attempt needs is there before it."""


def prepare(connection: socket.socket) -> Callable[[], NoReturn]:
    """Return what answers until the other end closes."""
    return partial(_serve, connection)


def _serve(connection: socket.socket) -> NoReturn:
    connection.setblocking(True)
    while True:
        length = struct.unpack(">I", _receive(connection, 4))[0]
        answer = _run(_receive(connection, length).decode()).encode()
        connection.sendall(struct.pack(">I", len(answer)) + answer)


def _run(source: str) -> str:
    names: dict[str, Any] = {}
    try:
        exec(compile(source, "attempt.py", "exec"), names)
        return f"GOT {names.get('result')!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def _receive(connection: socket.socket, num_bytes: int) -> bytes:
    received = b""
    while len(received) < num_bytes:
        piece = connection.recv(num_bytes - len(received))
        if not piece:
            raise SystemExit
        received += piece
    return received
