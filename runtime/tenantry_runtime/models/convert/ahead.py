"""Work done by threads a little ahead of who takes its results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

import torch

_WORK = TypeVar("_WORK")
_RESULT = TypeVar("_RESULT")

# pieces per thread, so that none waits; each holds one matrix in memory
_PIECES = 2


class Ahead:
    """Threads, of each of which torch uses one core."""

    def __init__(self, num_threads: int) -> None:
        self._limit = _PIECES * num_threads
        # torch's own threads, in each of these, would only wait for one another
        self._pool = ThreadPoolExecutor(
            num_threads, initializer=torch.set_num_threads, initargs=(1,)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the threads; pieces that nobody took are dropped."""
        self._pool.shutdown(cancel_futures=True)

    def results(
        self, work: Callable[[_WORK], _RESULT], pieces: Iterable[_WORK]
    ) -> Iterator[tuple[_WORK, _RESULT]]:
        """Yield every piece with its result, in order; the first error ends it."""
        pending: deque[tuple[_WORK, Future[_RESULT]]] = deque()
        for piece in pieces:
            pending.append((piece, self._pool.submit(work, piece)))
            if len(pending) == self._limit:
                first, future = pending.popleft()
                yield first, future.result()
        while pending:
            first, future = pending.popleft()
            yield first, future.result()
