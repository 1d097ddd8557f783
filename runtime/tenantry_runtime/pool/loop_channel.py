"""The step loop's end of its socket: never blocks while there is work, never grows without bound."""

from __future__ import annotations

import select
import socket

from .frames import FrameBuffer, with_length

MAX_UNSENT_BYTES = 1 << 20
"""With more than this unsent, the loop stops computing until the front has read: some hundred steps
of a batch of 256, and the socket's own buffer comes on top."""

RECEIVE_BYTES = 1 << 18
MAX_RECEIVED_BYTES = 4 << 20
"""Read between two turns at most, so that a flood of submissions cannot hold up decoding."""


class PeerGone(ConnectionError):
    """The other end of the socket is closed."""


class LoopChannel:
    """Messages of a step loop to and from its front, over a connected stream socket that it owns."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self._peer = peer
        self._received = FrameBuffer()
        self._unsent = bytearray()
        self._poll = select.poll()
        self._poll.register(peer, 0)

    @property
    def is_congested(self) -> bool:
        return len(self._unsent) > MAX_UNSENT_BYTES

    @property
    def num_unsent_bytes(self) -> int:
        return len(self._unsent)

    def post(self, message: bytes) -> None:
        """Queue a message; `exchange` sends it."""
        self._unsent += with_length(message)

    def push(self) -> None:
        """Send what the other end takes at once; raise `PeerGone` when it is closed."""
        try:
            self._send()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerGone from error

    def exchange(self, timeout_s: float | None) -> list[bytes]:
        """Send and receive what is possible now, after waiting up to `timeout_s` for either.

        None waits without end, 0 not at all. A congested channel only sends: what it would receive
        could not be answered. Raise `PeerGone` when the other end is closed.
        """
        wanted = 0 if self.is_congested else select.POLLIN
        if self._unsent:
            wanted |= select.POLLOUT
        self._poll.modify(self._peer, wanted)
        ready = self._poll.poll(None if timeout_s is None else timeout_s * 1000)
        events = ready[0][1] if ready else 0

        try:
            if events & select.POLLOUT:
                self._send()
            if events & select.POLLIN:
                return self._receive()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerGone from error
        # without POLLIN nothing is left to read, or nothing may be
        if events & (select.POLLHUP | select.POLLERR):
            raise PeerGone
        return []

    def flush(self) -> None:
        """Send everything, however long the other end takes."""
        while self._unsent:
            self.exchange(None)

    def close(self) -> None:
        self._peer.close()

    def _send(self) -> None:
        try:
            del self._unsent[: self._peer.send(self._unsent)]
        except BlockingIOError:
            return

    def _receive(self) -> list[bytes]:
        messages: list[bytes] = []
        for _ in range(MAX_RECEIVED_BYTES // RECEIVE_BYTES):
            try:
                chunk = self._peer.recv(RECEIVE_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                raise PeerGone
            messages += self._received.feed(chunk)
        return messages
