"""The requests that are open: how many there may be, and the way to end them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from tenantry_runtime.errors import CapacityExceeded


@dataclass(frozen=True, slots=True)
class OpenRequestsStatistics:
    num_open: int
    is_closed: bool


class OpenRequests:
    """Admits requests up to a limit, until it is closed."""

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        self._scopes: set[anyio.CancelScope] = set()
        self._is_closed = False

    @contextmanager
    def admit(self) -> Iterator[anyio.CancelScope]:
        """Hold a place while the block runs. `close` cancels the scope that it yields.

        Raises `CapacityExceeded` when all places are taken, or after `close`.
        """
        if self._is_closed or len(self._scopes) >= self._max_requests:
            raise CapacityExceeded
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.remove(scope)

    def close(self) -> None:
        """End every open request, and admit no more."""
        self._is_closed = True
        for scope in self._scopes:
            scope.cancel()

    def statistics(self) -> OpenRequestsStatistics:
        return OpenRequestsStatistics(num_open=len(self._scopes), is_closed=self._is_closed)
