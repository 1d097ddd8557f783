"""The way from whoever makes telemetry to whoever takes it: a bounded queue, and a thread that empties it.

Who makes it never waits. A collector that hangs, refuses or vanishes costs this thread its time, and
what does not fit into the queue meanwhile; nobody else, and no memory beyond the queue's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
SentT = TypeVar("SentT", contravariant=True)

# not this package's: a collector that fails must not be told so
_log = logging.getLogger("opentelemetry.tenantry.post")


class Exports(Protocol[SentT]):
    """Sends a batch; returns when it is there or given up. Called by one thread."""

    def export(self, batch: Sequence[SentT], /) -> object:
        """Return something whose `name` is `SUCCESS` if the batch has arrived."""
        ...

    def shutdown(self) -> None:
        """Give up what is being tried again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PostLimits:
    """As the variables of batch processors have them."""

    max_waiting: int = 2048
    max_batch: int = 512
    delay_s: float = 2.0
    """Between batches that are not full."""
    max_size: int | None = None
    """Of all that waits, as the post's `size_of` counts; None: their number is bound enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostStatistics:
    num_waiting: int
    num_dropped: int
    """For which there was no room."""
    num_sent: int
    num_lost: int
    """In batches that did not arrive."""


class Post(Generic[T]):
    """One destination."""

    def __init__(
        self,
        exporter: Exports[T],
        *,
        name: str,
        limits: PostLimits | None = None,
        prepare: Callable[[T], T] | None = None,
        size_of: Callable[[T], int] | None = None,
    ) -> None:
        """`prepare` makes of what was taken what is sent, in the thread that sends."""
        self._exporter = exporter
        self._limits = limits or PostLimits()
        self._prepare = prepare
        self._size_of = size_of
        self._waiting: deque[tuple[T, int]] = deque()
        self._size = 0
        """Of what waits."""
        self._changed = threading.Condition()
        self._is_closing = False
        self._num_dropped = self._num_sent = self._num_lost = 0
        # a daemon: what hangs in a collector's connection does not keep the process alive
        self._thread = threading.Thread(target=self._run, name=f"post-{name}", daemon=True)
        self._thread.start()

    def take(self, one: T) -> None:
        """Queue it, or drop it where there is no room."""
        size = 0 if self._size_of is None else self._size_of(one)
        with self._changed:
            if self._is_closing or not self._has_room(size):
                self._num_dropped += 1
                return
            self._waiting.append((one, size))
            self._size += size
            if len(self._waiting) == self._limits.max_batch:
                self._changed.notify()

    def begin_close(self) -> None:
        """Take nothing more, and send what waits."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def join(self, deadline_s: float) -> None:
        """Wait, until then on the monotonic clock, for what waits to be sent; leave the rest."""
        self._thread.join(max(deadline_s - time.monotonic(), 0))
        # interrupts what tries again and again
        self._exporter.shutdown()
        with self._changed:
            self._num_dropped += len(self._waiting)
            self._waiting.clear()

    def statistics(self) -> PostStatistics:
        with self._changed:
            return PostStatistics(
                num_waiting=len(self._waiting),
                num_dropped=self._num_dropped,
                num_sent=self._num_sent,
                num_lost=self._num_lost,
            )

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                if self._prepare is not None:
                    batch = [self._prepare(each) for each in batch]
                has_arrived = getattr(self._exporter.export(batch), "name", "") == "SUCCESS"
            except Exception:
                # the outermost place of a thread: the next batch may do better
                _log.exception("a batch could not be sent")
                has_arrived = False
            with self._changed:
                if has_arrived:
                    self._num_sent += len(batch)
                else:
                    self._num_lost += len(batch)

    def _next_batch(self) -> list[T]:
        """Wait for one; empty at the end."""
        limits = self._limits
        with self._changed:
            self._changed.wait_for(self._is_due, timeout=limits.delay_s)
            while not self._waiting and not self._is_closing:
                self._changed.wait_for(self._is_due, timeout=limits.delay_s)
            num = min(len(self._waiting), limits.max_batch)
            taken = [self._waiting.popleft() for _ in range(num)]
            self._size -= sum(size for _, size in taken)
            return [one for one, _ in taken]

    def _has_room(self, size: int) -> bool:
        limits = self._limits
        if limits.max_size is not None and self._size + size > limits.max_size:
            return False
        return len(self._waiting) < limits.max_waiting

    def _is_due(self) -> bool:
        return self._is_closing or len(self._waiting) >= self._limits.max_batch


def close_all(posts: Iterable[Post[T]], within_s: float) -> None:
    """End all at the same time: one that hangs costs the others nothing."""
    closing = list(posts)
    for post in closing:
        post.begin_close()
    deadline_s = time.monotonic() + within_s
    for post in closing:
        post.join(deadline_s)
