"""Server-sent events from bytes that arrive in any pieces."""

from __future__ import annotations

from typing import NamedTuple


class ServerSentEvent(NamedTuple):
    name: str
    """`message` unless the stream says otherwise."""
    data: bytes


class SSEDecoder:
    """Splits a stream at its blank lines; comments, ids and retry hints are dropped.

    An event that the stream's end cuts off is never returned.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []
        self._is_at_start = True

    def feed(self, received: bytes) -> list[ServerSentEvent]:
        """Return the events that these bytes complete."""
        lines = (self._rest + received).splitlines(keepends=True)
        # a carriage return at the end may be the first half of a line end
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        if self._is_at_start and lines:
            self._is_at_start = False
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        return [event for line in lines if (event := self._take(line.rstrip(b"\r\n")))]

    def _take(self, line: bytes) -> ServerSentEvent | None:
        if not line:
            event = ServerSentEvent(self._name or "message", b"\n".join(self._data))
            has_data = bool(self._data)
            self._name, self._data = "", []
            return event if has_data else None
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None
