"""One isolate's life: files, the import, invocations, and the end."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import tenantry.workers._env
import tenantry.workers._worker
from tenantry.workers._aliases import install_aliases
from tenantry.workers._host import Invocation, current_id, enter
from tenantry_runtime.workers.frames import (
    Break,
    Busy,
    Cancel,
    Credit,
    Data,
    Drain,
    End,
    Fetch,
    Fetched,
    File,
    Load,
    Loaded,
    LoadFailed,
    NeverEnds,
    Refusal,
    Result,
    Resume,
    Rpc,
    Scheduled,
    Streamed,
    ToIsolate,
)

from .bundle import Bundle
from .channel import Channel
from .failures import MAX_NAME, clean, message_of, name_of, place_of, trace_of
from .host import FrameHost
from .invocations import Begin, Run
from .output import Output
from .streams import Streams
from .waiting import place_of_wait

IDLE_FILES = 2
"""In the selector: the connection, and the loop's own."""


class Session:
    """Takes the runtime's frames; `over` is called when nothing is left to do."""

    def __init__(self, loop: asyncio.AbstractEventLoop, over: Callable[[], None]) -> None:
        self.loop = loop
        self.channel = Channel(loop, self._receive, over)
        self.streams = Streams(self.channel, loop)
        self.output = Output(self.channel, loop)
        self.host = FrameHost(self.streams, self.output, loop)
        self.bundle = Bundle()
        self.worker: tenantry.workers._worker.Worker | None = None
        self.runs: dict[int, Run] = {}
        """That have not finished."""
        self._over = over
        self._isolate: Invocation | None = None
        self._owners: WeakKeyDictionary[asyncio.Future[Any], int] = WeakKeyDictionary()
        """Of the worker's own tasks: their invocations."""
        self._context = contextvars.copy_context()
        self._is_draining = False
        self._is_suspended = False
        self._last = 0
        """Invocation that was read."""
        self._ending: asyncio.Task[None] | None = None
        self._on: dict[type, Callable[[Any], None]] = {
            Fetch: self._begin,
            Scheduled: self._begin,
            Rpc: self._begin,
            Data: self._data,
            Credit: self._credit,
            End: self._end_of_stream,
            Break: self._break,
            Result: self.host.answer,
            Refusal: self.host.answer,
            Fetched: self.host.answer,
            Streamed: self.host.answer,
            Cancel: self._cancel,
            File: self._file,
            Load: self._load,
            Drain: self._drain,
            Resume: self._resume,
        }
        loop.set_task_factory(self._new_task)
        loop.set_exception_handler(self._not_retrieved)

    def new_context(self) -> contextvars.Context:
        """Return what an invocation begins with: what the import left, and no more."""
        return self._context.copy()

    def finish(self, number: int) -> None:
        """Forget an invocation; `Finished` is the next that is said of it."""
        self.output.finish(number)
        del self.runs[number]
        del self.host.pumps[number]
        if self._is_draining and not self.runs:
            self._end()

    def is_vain(self, num_files: int) -> bool:
        """Whether there are invocations, not yet told of, that nothing here and no call can wake.

        The loop watches so many files, and waits with no timer.
        """
        return (
            bool(self.runs)
            and not self.host.calls
            and not self.streams.num_awaited
            and num_files <= IDLE_FILES
            and threading.active_count() == 1
            and not all(run.has_been_told for run in self.runs.values())
        )

    def tell_who_never_ends(self) -> None:
        """Tell of them, at once: the loop has chosen to wait already."""
        for number, run in self.runs.items():
            if not run.has_been_told:
                run.has_been_told = True
                places = [place_of_wait(task) for task in run.waiting_tasks()]
                path, line = max(places, default=("", 0))
                self.channel.send(NeverEnds(number, path, line))
        self.channel.flush()

    def tell_busy(self, path: str, line: int, is_sending: bool) -> None:
        """Tell where the worker's code is, in the midst of it, and give back what has not begun."""
        unbegun = [number for number, run in self.runs.items() if run.give_back()]
        self._is_suspended = True
        frame = Busy(current_id(), clean(path, MAX_NAME), line, self._last, unbegun)
        self.channel.interject(frame, is_sending=is_sending)

    def _resume(self, frame: Resume) -> None:
        self._is_suspended = False

    def _receive(self, frame: ToIsolate) -> None:
        self._on[type(frame)](frame)

    def _file(self, frame: File) -> None:
        self.bundle.add(frame.path, frame.data)

    def _load(self, frame: Load) -> None:
        self.output.max_lines = frame.log_lines
        before_s = time.process_time()
        try:
            self._context.run(self._import, frame)
        except BaseException as error:
            path, line = place_of(error)
            self.channel.send(
                LoadFailed(name_of(error), message_of(error), path, line, trace_of(error))
            )
            return
        finally:
            self.output.finish_lines(0)
        assert self.worker is not None
        cpu_ms = (time.process_time() - before_s) * 1000
        self.channel.send(Loaded(self.worker.entrypoints, cpu_ms))

    def _import(self, frame: Load) -> None:
        env = tenantry.workers._env.make_env(
            self.host, [(binding.name, binding.kind, binding.value) for binding in frame.bindings]
        )
        self._isolate = Invocation(self.host, env)
        enter(self._isolate)
        install_aliases()
        self.bundle.install(frame.main_module, has_vendored=frame.has_vendored)
        module = self.bundle.import_main(frame.main_module)
        self.worker = tenantry.workers._worker.Worker(module)

    def _begin(self, frame: Begin) -> None:
        assert self._isolate is not None
        if self._is_suspended:
            # it was given back unread
            return
        self._last = number = frame.invocation
        trace = frame.trace
        invocation = self._isolate.begin(
            number, traceparent=trace.traceparent, tracestate=trace.tracestate
        )
        run = self.runs[number] = Run(self, frame, invocation)
        self.host.pumps[number] = run.pumps
        self.output.begin(number)

    def _cancel(self, frame: Cancel) -> None:
        run = self.runs.get(frame.invocation)
        if run is not None:
            run.cancel(with_background=frame.with_background)

    def _data(self, frame: Data) -> None:
        stream = self.streams.incoming.get(frame.stream)
        if stream is not None:
            stream.feed(frame.data)

    def _end_of_stream(self, frame: End) -> None:
        stream = self.streams.incoming.get(frame.stream)
        if stream is not None:
            stream.finish()

    def _break(self, frame: Break) -> None:
        if frame.stream % 2:
            outgoing = self.streams.outgoing.get(frame.stream)
            if outgoing is not None:
                outgoing.refuse()
        elif frame.stream in self.streams.incoming:
            self.streams.incoming[frame.stream].finish(frame.message or "the stream broke")

    def _credit(self, frame: Credit) -> None:
        stream = self.streams.outgoing.get(frame.stream)
        if stream is not None:
            stream.grant(frame.num_bytes)

    def _drain(self, frame: Drain) -> None:
        self._is_draining = True
        if not self.runs:
            self._end()

    def _end(self) -> None:
        self._ending = asyncio.Task(self._close(), loop=self.loop, context=self.new_context())

    async def _close(self) -> None:
        if self.worker is not None and self._isolate is not None:
            try:
                await self.worker.close(self._isolate)
            except Exception as error:
                self.output.log("error", trace_of(error))
        self.channel.flush()
        self.channel.close()

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Any,
        **options: Any,
    ) -> asyncio.Task[Any]:
        """Make one of the worker's own tasks, of the invocation whose context it has."""
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        context: contextvars.Context | None = options.get("context")
        run = self.runs.get(current_id() if context is None else context.copy().run(current_id))
        if run is not None:
            run.tasks.add(task)
            self._owners[task] = run.invocation.id
            task.add_done_callback(run.tasks.discard)
        return task

    def _not_retrieved(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = str(context.get("message", ""))
        if isinstance(error, BaseException):
            text = f"{text}\n{trace_of(error)}"
        future = context.get("future")
        owner = self._owners.get(future) if isinstance(future, asyncio.Future) else None
        self.output.log("error", text.rstrip("\n"), owner)
