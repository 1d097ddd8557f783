"""What `tenantry.workers` calls the runtime by: each call a frame, each answer a future."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from tenantry.workers._errors import call_error
from tenantry.workers._host import Body, HostResponse, HostStream, current_id
from tenantry_runtime.workers.frames import (
    MAX_FRAME_BYTES,
    Call,
    Fetched,
    Forget,
    Refusal,
    Result,
    Streamed,
)

from .failures import MAX_NAME
from .output import Output
from .streams import Incoming, Outgoing, Streams
from .wire import FrameTooLarge

Answer: TypeAlias = Result | Refusal | Fetched | Streamed


class FrameHost:
    """The one host of an isolate: its calls belong to the invocation in whose task they are made."""

    def __init__(self, streams: Streams, output: Output, loop: asyncio.AbstractEventLoop) -> None:
        self.calls: dict[int, asyncio.Future[Answer]] = {}
        """Open ones."""
        self.pumps: dict[int, set[asyncio.Task[None]]] = {0: set()}
        """Bodies of calls on their way, by the invocations that have not finished, and of none (0)."""
        self._streams = streams
        self._output = output
        self._loop = loop
        self._last = 0

    async def call(
        self, binding: str, method: str, args: list[Any], body: Body = None
    ) -> object | HostResponse | HostStream:
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                f"{binding} was called in another event loop than the worker's own; "
                "use asyncio.run_coroutine_threadsafe from threads"
            )
        handed_on = body.hand_on() if isinstance(body, Incoming) else None
        outgoing = None
        if body is not None and handed_on is None:
            outgoing = self._streams.open_outgoing()
        try:
            number, answer = self._begin(
                binding, method, args, handed_on if outgoing is None else outgoing.number
            )
        except BaseException:
            if outgoing is not None:
                outgoing.forget()
            raise
        pumping = None if outgoing is None else self._pump(outgoing, body)
        frame: Answer | None = None
        try:
            frame = await answer
            return self._value(frame)
        finally:
            if self.calls.pop(number, None) is not None:
                self._streams.channel.send(Forget(number))
            # a response may come before the body that it answers has been read
            if pumping is not None and not isinstance(frame, Fetched):
                pumping.cancel()

    def log(self, level: str, text: str) -> None:
        self._output.log(level, text)

    def answer(self, frame: Answer) -> None:
        """Take how a call ended; a stream that nobody waits for any more is broken."""
        future = self.calls.pop(frame.call, None)
        if future is not None and not future.done():
            future.set_result(frame)
            return
        if isinstance(frame, Fetched) and frame.body_stream is not None:
            self._streams.open_incoming(frame.body_stream).close()
        elif isinstance(frame, Streamed):
            self._streams.open_incoming(frame.stream).close()

    def _begin(
        self, binding: str, method: str, args: list[Any], body_stream: int | None
    ) -> tuple[int, asyncio.Future[Answer]]:
        self._last = number = self._last + 1
        if len(method) > MAX_NAME:
            raise ValueError(f"{binding} has no method with a name of {len(method)} characters")
        try:
            self._streams.channel.send(
                Call(number, self._invocation(), binding, method, args, body_stream)
            )
        except FrameTooLarge as error:
            raise ValueError(
                f"the arguments of {binding}.{method} are {error.num_bytes} bytes; "
                f"at most {MAX_FRAME_BYTES} can be sent"
            ) from None
        future = self.calls[number] = self._loop.create_future()
        return number, future

    def _invocation(self) -> int:
        """Return for which invocation the running task calls; one that outlives its own, for none."""
        number = current_id()
        return number if number in self.pumps else 0

    def _pump(self, outgoing: Outgoing, body: Body) -> asyncio.Task[None]:
        pumps = self.pumps[self._invocation()]
        # not one of the tasks that are the worker's own
        task = asyncio.Task(outgoing.pump(body), loop=self._loop)
        outgoing.on_refused = task.cancel
        pumps.add(task)

        def over(task: asyncio.Task[None]) -> None:
            pumps.discard(task)
            outgoing.abandon()
            if not task.cancelled():
                # what it raised has broken the stream, which fails the call
                task.exception()

        task.add_done_callback(over)
        return task

    def _value(self, frame: Answer) -> object | HostResponse | HostStream:
        match frame:
            case Result():
                value: object = frame.value
                return value
            case Refusal():
                raise call_error(frame.name, frame.message, frame.code)
            case Streamed():
                return self._streams.open_incoming(frame.stream, frame.content_type)
            case Fetched():
                body: bytes | HostStream | None = frame.body
                if frame.body_stream is not None:
                    body = self._streams.open_incoming(frame.body_stream)
                return HostResponse(frame.status, frame.headers, body, frame.url)
