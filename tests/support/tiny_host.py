"""Asks an isolate that runs the tiny guest."""

from __future__ import annotations

import ast
import struct
from typing import Any

import anyio

from tenantry_runtime.workers.sandbox import Spawned


class TinyGuest:
    """The runtime's side."""

    def __init__(self, spawned: Spawned) -> None:
        self.spawned = spawned
        self._received = b""

    async def ask(self, source: str) -> str:
        """Return what code got, or how it raised. Raises `EOFError` when the isolate ends."""
        answer = await self.ask_or_none(source)
        if answer is None:
            raise EOFError(f"the isolate ended: {await self.spawned.wait()}")
        return answer

    async def value(self, source: str) -> Any:
        """Return the literal that code got. Raises `ValueError` if it raised."""
        answer = await self.ask(source)
        if not answer.startswith("GOT "):
            raise ValueError(answer)
        return ast.literal_eval(answer.removeprefix("GOT "))

    async def ask_or_none(self, source: str) -> str | None:
        """Return None when the isolate ends instead."""
        encoded = source.encode()
        try:
            await self._send(struct.pack(">I", len(encoded)) + encoded)
            length = struct.unpack(">I", await self._receive(4))[0]
            return (await self._receive(length)).decode()
        except (ConnectionError, EOFError):
            return None

    async def _send(self, packet: bytes) -> None:
        while packet:
            try:
                packet = packet[self.spawned.socket.send(packet) :]
            except BlockingIOError:
                await anyio.wait_writable(self.spawned.socket)

    async def _receive(self, num_bytes: int) -> bytes:
        while len(self._received) < num_bytes:
            try:
                piece = self.spawned.socket.recv(1 << 16)
            except BlockingIOError:
                await anyio.wait_readable(self.spawned.socket)
                continue
            if not piece:
                raise EOFError
            self._received += piece
        taken, self._received = self._received[:num_bytes], self._received[num_bytes:]
        return taken
