"""What an isolate does in no invocation: while it imports its worker, and in tasks that outlive theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry_runtime.workers.interface import (
    ByteStream,
    CallRefused,
    ErrorLine,
    HttpResponse,
    LogLine,
    StreamResult,
)

from .calls import Calls
from .log_lines import LogLines

MAX_LINES = 256
"""Kept for the next record: as many as an invocation has by default."""


class Outside:
    """An `Attendant`. Lines wait for the next record of the isolate's, for want of one of their own."""

    def __init__(self) -> None:
        self._calls: Calls | None = None
        self.lines = LogLines(MAX_LINES)

    def begin(self, calls: Calls) -> None:
        """Answer calls from now on, when the isolate has got its version."""
        self._calls = calls

    async def call(
        self, binding: str, method: str, args: Sequence[Any], body: ByteStream | None
    ) -> object | HttpResponse | StreamResult:
        if self._calls is None:
            raise CallRefused("Error", "there is no worker yet")
        return await self._calls.call(binding, method, args, body)

    def log(self, line: LogLine) -> None:
        self.lines.add(line)

    def failed(self, error: ErrorLine) -> None:
        """No handler runs outside of invocations."""

    def never_ends(self, path: str, line: int) -> None:
        """An import may wait for nothing; its time is limited."""

    def finished(self) -> None:
        """What is outside of invocations ends with the isolate."""
