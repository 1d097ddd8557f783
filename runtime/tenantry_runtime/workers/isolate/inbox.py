"""What each frame of an isolate may be, and whom it concerns."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable
from typing import Any

import anyio

from tenantry_runtime.workers.frames import (
    Break,
    Busy,
    Call,
    Cancel,
    Credit,
    Data,
    End,
    Failed,
    Finished,
    Forget,
    FromIsolate,
    Loaded,
    LoadFailed,
    Log,
    NeverEnds,
    Respond,
    Resume,
    Returned,
)
from tenantry_runtime.workers.guest.wire import faulty_header
from tenantry_runtime.workers.interface import ByteStream, ErrorLine, HttpResponse, LoadError

from .calls import Calls
from .channel import Channel
from .interface import (
    Attendant,
    Ending,
    EndingKind,
    HeldUp,
    InvocationFailed,
    IsolateEnded,
    IsolateLimits,
    NeverBegan,
    StreamBroken,
    Violation,
)
from .invocations import Opened, State
from .logs import LogGate
from .streams import Received, Sources

_HELD_UP = Ending(EndingKind.LEFT, "the isolate was held up")


class Inbox:
    """Takes an isolate's frames, and holds what is open between it and the runtime."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        outside: Attendant,
        limits: IsolateLimits,
        ended: anyio.Event,
    ) -> None:
        self.ending: Ending | None = None
        self.held_up: HeldUp | None = None
        """What it said last when it was asked."""
        self._num_words = 0
        """Frames that even an isolate sends that does not read."""
        self.channel = Channel(loop, connection, self._receive, self._end)
        self.sources = Sources(self.channel)
        self.calls = Calls(self.channel, self.sources, limits)
        self.opened: dict[int, Opened] = {}
        self.received: dict[int, Received] = {}
        self.loading: asyncio.Future[Loaded] | None = None
        """Who waits for the import; set once."""
        self._outside = outside
        self._limits = limits
        self._ended = ended
        self.gate = LogGate(limits)
        self._last_stream = 0
        self._on: dict[type, Callable[[Any], None]] = {
            Respond: self._on_respond,
            Returned: self._on_returned,
            Failed: self._on_failed,
            Finished: self._on_finished,
            Data: self._on_data,
            Credit: self._on_credit,
            End: self._on_end,
            Break: self._on_break,
            Call: self._on_call,
            Forget: self._on_forget,
            Log: self._on_log,
            NeverEnds: self._on_never_ends,
            Busy: self._on_busy,
            Loaded: self._on_loaded,
            LoadFailed: self._on_load_failed,
        }

    @property
    def num_signs(self) -> int:
        """Frames that show that the isolate reads."""
        return self.channel.num_frames - self._num_words

    def leave(self, opened: Opened) -> None:
        """Hear that nobody waits for an invocation's answer any more, nor for its body."""
        opened.is_left = True
        if opened.passed is not None:
            self.sources.dispose(opened.passed)
            opened.passed = None
        is_over = opened.state is State.OVER
        if opened.body is not None:
            is_over = is_over or opened.body.is_over
            opened.body.refuse()
        if not is_over:
            self.channel.send(Cancel(opened.number))

    def _end(self, ending: Ending) -> None:
        self.ending = ending
        error = IsolateEnded(ending)
        if self.loading is not None and not self.loading.done():
            self.loading.set_exception(error)
        self.calls.end_all()
        opened_ones = list(self.opened.values())
        self.opened.clear()
        for opened in opened_ones:
            if opened.position >= ending.unread_from and opened.is_unheard:
                opened.give_back(NeverBegan(ending))
        self.sources.end_all()
        for opened in opened_ones:
            if opened.state is not State.OVER:
                opened.fail(error)
        for received in self.received.values():
            received.fail(StreamBroken("the isolate has ended"))
        self.received.clear()
        for opened in opened_ones:
            opened.attendant.finished()
        self._ended.set()

    def _receive(self, frame: FromIsolate) -> None:
        self._on[type(frame)](frame)

    def _invocation(self, frame: Any) -> Opened:
        opened = self.opened.get(frame.invocation)
        if opened is None:
            name = type(frame).__name__
            raise Violation(f"{name} for invocation {frame.invocation}, which is not open")
        return opened

    def _on_respond(self, frame: Respond) -> None:
        opened = self._invocation(frame)
        if not opened.is_fetch:
            raise Violation(f"Respond for invocation {opened.number}, which is no fetch")
        if opened.state is not State.RUNNING:
            raise Violation(f"Respond for invocation {opened.number}, which was answered before")
        if faulty := faulty_header(frame.headers):
            raise Violation(f"a header that HTTP has no way to write: {faulty[0][:64]!r}")
        body: bytes | ByteStream = frame.body or b""
        if frame.body_stream is not None:
            if frame.body is not None:
                raise Violation("a response with two bodies")
            body = self._body(frame.body_stream)
            if isinstance(body, Received):
                body.is_answer = True
                opened.body = body
            else:
                opened.passed = body
        opened.answered(
            HttpResponse(status=frame.status, headers=frame.headers, body=body), by="Respond"
        )
        if opened.is_left:
            self.leave(opened)

    def _on_returned(self, frame: Returned) -> None:
        opened = self._invocation(frame)
        if opened.is_fetch:
            raise Violation(f"Returned for invocation {opened.number}, which is a fetch")
        opened.answered(frame.value, by="Returned")

    def _on_failed(self, frame: Failed) -> None:
        opened = self._invocation(frame)
        may_fail = opened.state is State.RUNNING or opened.body is not None
        if opened.has_failed or not may_fail:
            raise Violation(f"Failed for invocation {opened.number}, which had ended")
        opened.has_failed = True
        line = ErrorLine(
            name=frame.name,
            message=frame.message,
            time_ms=time.time_ns() // 1_000_000,
            stack=frame.trace,
        )
        opened.attendant.failed(line)
        opened.fail(InvocationFailed(frame.name, frame.message, frame.trace))

    def _on_finished(self, frame: Finished) -> None:
        opened = self._invocation(frame)
        if opened.state is State.RUNNING:
            raise Violation(f"Finished for invocation {opened.number}, which was not answered")
        if opened.body is not None:
            if opened.body.number in self.received:
                raise Violation(f"Finished for invocation {opened.number} before its body's end")
            opened.fail(InvocationFailed("Error", "the body broke off"))
        del self.opened[opened.number]
        for number in list(opened.calls):
            self.calls.forget(number)
        for source in list(opened.sources):
            source.end("its invocation has finished")
        opened.attendant.finished()

    def _on_data(self, frame: Data) -> None:
        self._stream(frame.stream).feed(frame.data)

    def _on_end(self, frame: End) -> None:
        self._stream(frame.stream).finish()
        del self.received[frame.stream]

    def _on_break(self, frame: Break) -> None:
        if frame.stream % 2 == 0:
            source = self.sources.get(frame.stream)
            if source is not None:
                source.end("")
            return
        stream = self._stream(frame.stream)
        del self.received[frame.stream]
        # of an answer's body `Failed` says why
        if not stream.is_answer:
            stream.fail(StreamBroken(frame.message or "the worker broke the stream"))

    def _on_credit(self, frame: Credit) -> None:
        if frame.stream % 2:
            raise Violation(f"Credit for stream {frame.stream}, which is the isolate's own")
        source = self.sources.get(frame.stream)
        if source is not None:
            source.grant(frame.num_bytes)

    def _on_call(self, frame: Call) -> None:
        opened = self._invocation(frame) if frame.invocation else None
        # the last that can be wrong: a body that was taken is somebody's to close
        self.calls.number(frame.call)
        body = None if frame.body_stream is None else self._body(frame.body_stream)
        attendant = self._outside if opened is None else opened.attendant
        self.calls.begin(frame, body, attendant, opened)

    def _on_forget(self, frame: Forget) -> None:
        self.calls.forget(frame.call)

    def _on_busy(self, frame: Busy) -> None:
        self._num_words += 1
        given_back = {*frame.unbegun, *(each for each in self.opened if each > frame.last)}
        for number in given_back.intersection(self.opened):
            opened = self.opened[number]
            if not opened.is_unheard:
                raise Violation(f"Busy gives back invocation {number}, which had begun")
            del self.opened[number]
            opened.give_back(NeverBegan(_HELD_UP))
            opened.attendant.finished()
        holder = self.opened.get(frame.invocation)
        attendant = None if holder is None else holder.attendant
        self.held_up = HeldUp(attendant, frame.path, frame.line, self.num_signs)
        self.channel.send(Resume())

    def _on_log(self, frame: Log) -> None:
        self._num_words += 1
        opened = self._invocation(frame) if frame.invocation else None
        line = self.gate.admit(frame, opened)
        if line is not None:
            (self._outside if opened is None else opened.attendant).log(line)

    def _on_never_ends(self, frame: NeverEnds) -> None:
        opened = self._invocation(frame)
        if opened.has_never_ended:
            raise Violation(f"NeverEnds for invocation {opened.number}, for the second time")
        opened.has_never_ended = True
        opened.attendant.never_ends(frame.path, frame.line)

    def _on_loaded(self, frame: Loaded) -> None:
        loading = self._awaited_load("Loaded")
        if not math.isfinite(frame.cpu_ms):
            raise Violation(f"an import that took {frame.cpu_ms} ms")
        if loading is not None:
            loading.set_result(frame)

    def _on_load_failed(self, frame: LoadFailed) -> None:
        loading = self._awaited_load("LoadFailed")
        if loading is not None:
            loading.set_exception(
                LoadError(
                    frame.name, frame.message, path=frame.path, line=frame.line, trace=frame.trace
                )
            )

    def _awaited_load(self, name: str) -> asyncio.Future[Loaded] | None:
        """Return who waits for the import; None if whoever did has gone."""
        loading = self.loading
        if loading is None or (loading.done() and not loading.cancelled()):
            raise Violation(f"{name}, when nothing was being loaded")
        return None if loading.cancelled() else loading

    def _stream(self, number: int) -> Received:
        stream = self.received.get(number)
        if stream is None:
            raise Violation(f"there is no stream {number} of the isolate's")
        return stream

    def _body(self, number: int) -> ByteStream:
        """Return the body that a frame names: the runtime's own, or a new one of the isolate's."""
        if number % 2 == 0:
            return self.sources.take(number)
        if number <= self._last_stream:
            raise Violation(f"stream {number} after stream {self._last_stream}")
        if len(self.received) >= self._limits.max_streams:
            raise Violation(f"more than {self._limits.max_streams} streams at once")
        self._last_stream = number
        stream = self.received[number] = Received(self.channel, number)
        return stream
