"""Calls that an isolate makes: each a task, whose answer becomes a frame."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from tenantry_runtime.workers.byte_streams import BytesStream
from tenantry_runtime.workers.frames import (
    MAX_DATA_BYTES,
    Call,
    Fetched,
    Refusal,
    Result,
    Streamed,
)
from tenantry_runtime.workers.guest.wire import FrameTooLarge
from tenantry_runtime.workers.interface import (
    ByteStream,
    CallRefused,
    HttpResponse,
    StreamResult,
)

from .channel import Channel
from .interface import Attendant, IsolateLimits, StreamBroken, Violation
from .invocations import Opened
from .streams import Sources, close

INTERNAL_ERROR = "InternalError"
INTERNAL_PROBLEM = "the call failed for a reason that is the runtime's own"

_logger = logging.getLogger(__name__)


class _OpenCall:
    __slots__ = ("num_bytes", "scope")

    def __init__(self, num_bytes: int) -> None:
        self.scope = anyio.CancelScope()
        self.num_bytes = num_bytes


class Calls:
    """The open calls of one isolate."""

    def __init__(self, channel: Channel, sources: Sources, limits: IsolateLimits) -> None:
        self.group: TaskGroup
        self._channel = channel
        self._sources = sources
        self._limits = limits
        self._open: dict[int, _OpenCall] = {}
        self._num_bytes = 0
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def number(self, number: int) -> None:
        """Take a call's number. Raises `Violation` for one that is not new."""
        if number <= self._last:
            raise Violation(f"call {number} after call {self._last}")
        self._last = number

    def begin(
        self, call: Call, body: ByteStream | None, attendant: Attendant, opened: Opened | None
    ) -> None:
        """Answer a call whose number has been taken, in a task that closes the body."""
        problem = self._problem(self._channel.frame_bytes)
        if problem is not None:
            self._sources.dispose(body)
            self._channel.send(Refusal(call.call, "Error", problem))
            return
        answering = self._open[call.call] = _OpenCall(self._channel.frame_bytes)
        self._num_bytes += answering.num_bytes
        if opened is not None:
            opened.calls.add(call.call)
        self.group.start_soon(self._answer, call, body, attendant, opened, answering)

    def forget(self, number: int) -> None:
        """Cancel a call, if it is still open. Raises `Violation` for one that never was."""
        if number > self._last or not number:
            raise Violation(f"there is no call {number}")
        answering = self._open.get(number)
        if answering is not None:
            answering.scope.cancel()

    def end_all(self) -> None:
        """Cancel all, for want of an isolate."""
        for answering in self._open.values():
            answering.scope.cancel()

    def _problem(self, num_bytes: int) -> str | None:
        if len(self._open) >= self._limits.max_calls:
            return f"{self._limits.max_calls} calls are open; await some before making more"
        if self._open and self._num_bytes + num_bytes > self._limits.max_call_bytes:
            return (
                f"the arguments of open calls are {self._num_bytes} bytes; with another {num_bytes} "
                f"they are more than {self._limits.max_call_bytes}"
            )
        return None

    async def _answer(
        self,
        call: Call,
        body: ByteStream | None,
        attendant: Attendant,
        opened: Opened | None,
        answering: _OpenCall,
    ) -> None:
        answer: object = None
        is_sent = False
        try:
            with answering.scope:
                answer = await _ask(call, body, attendant)
                await self._channel.room()
                if answering.scope.cancel_called:
                    # with no wait in between, nothing raised it
                    return
                if body is not None and isinstance(answer, HttpResponse):
                    answer = _with_request_body(answer, body)
                self._send(call.call, answer, opened)
                is_sent = True
        finally:
            del self._open[call.call]
            self._num_bytes -= answering.num_bytes
            if opened is not None:
                opened.calls.discard(call.call)
            stream = _stream_of(answer)
            if not isinstance(stream, _Answering):
                await close(body)
            if not is_sent:
                await close(stream)

    def _send(self, number: int, answer: object, opened: Opened | None) -> None:
        stream = _stream_of(answer)
        if stream is not None and len(self._sources) >= self._limits.max_streams:
            self._sources.dispose(stream)
            problem = f"{self._limits.max_streams} streams are open; read or close some"
            answer = CallRefused("Error", problem)
        match answer:
            case CallRefused():
                frame: object = Refusal(number, answer.name, answer.message, answer.code)
            case HttpResponse():
                frame = self._fetched(number, answer, opened)
            case StreamResult():
                opened_stream = self._sources.open(answer.stream, opened)
                frame = Streamed(number, opened_stream, answer.content_type)
            case _:
                self._send_value(number, answer, opened)
                return
        self._channel.send(frame)

    def _fetched(self, number: int, response: HttpResponse, opened: Opened | None) -> Fetched:
        headers = list(response.headers)
        body = response.body
        if isinstance(body, bytes) and len(body) <= MAX_DATA_BYTES:
            return Fetched(number, response.status, headers, body, url=response.url)
        stream = BytesStream(body) if isinstance(body, bytes) else body
        opened_stream = self._sources.open(stream, opened)
        return Fetched(
            number, response.status, headers, body_stream=opened_stream, url=response.url
        )

    def _send_value(self, number: int, value: object, opened: Opened | None) -> None:
        try:
            self._channel.send(Result(number, value))
        except FrameTooLarge as error:
            if error.num_bytes > self._limits.max_result_bytes:
                problem = f"the result is {error.num_bytes} bytes, which is too much for a worker"
                self._channel.send(Refusal(number, "Error", problem))
                return
            is_bytes = isinstance(value, bytes)
            content = value if isinstance(value, bytes) else msgspec.json.encode(value)
            stream = self._sources.open(BytesStream(content), opened)
            content_type = "application/octet-stream" if is_bytes else "application/json"
            self._channel.send(Streamed(number, stream, content_type))
        except (TypeError, OverflowError):
            # a task of its own, as in `_ask`
            _logger.exception("a call returned what MessagePack does not know")
            self._channel.send(Refusal(number, INTERNAL_ERROR, INTERNAL_PROBLEM))


class _Answering:
    """The body of a response that may come before the request's has been read: both end with it."""

    __slots__ = ("_request_body", "_stream")

    def __init__(self, stream: ByteStream, request_body: ByteStream) -> None:
        self._stream = stream
        self._request_body = request_body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._stream)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await close(pieces)
            await self.aclose()

    async def aclose(self) -> None:
        await close(self._stream)
        await close(self._request_body)


async def _ask(call: Call, body: ByteStream | None, attendant: Attendant) -> object:
    args: Sequence[Any] = call.args
    try:
        return await attendant.call(call.binding, call.method, args, body)
    except CallRefused as refused:
        return refused
    except StreamBroken as broken:
        return CallRefused("Error", f"the body broke off: {broken}")
    except Exception:
        # a task of its own: what it raises would end the isolate, and whoever waits for it
        _logger.exception("a call of %s.%s failed", call.binding[:64], call.method[:64])
        return CallRefused(INTERNAL_ERROR, INTERNAL_PROBLEM)


def _with_request_body(response: HttpResponse, request_body: ByteStream) -> HttpResponse:
    if isinstance(response.body, bytes):
        return response
    return replace(response, body=_Answering(response.body, request_body))


def _stream_of(answer: object) -> ByteStream | None:
    if isinstance(answer, StreamResult):
        return answer.stream
    if isinstance(answer, HttpResponse) and not isinstance(answer.body, bytes):
        return answer.body
    return None
