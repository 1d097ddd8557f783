"""The requests that are open: how many there may be, and the way to end them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
        self._scopes: dict[anyio.CancelScope, Callable[[], bool]] = {}
        self._is_closed = False

    @contextmanager
    def admit(
        self, *, is_spared: Callable[[], bool] = lambda: False
    ) -> Iterator[anyio.CancelScope]:
        """Hold a place while the block runs. `close` cancels the scope that it yields, unless spared.

        Raises `CapacityExceeded` when all places are taken, or after `close`.
        """
        if self._is_closed or len(self._scopes) >= self._max_requests:
            raise CapacityExceeded
        with anyio.CancelScope() as scope:
            self._scopes[scope] = is_spared
            try:
                yield scope
            finally:
                del self._scopes[scope]

    def refuse(self) -> None:
        """Admit no more; those that are open go on."""
        self._is_closed = True

    def close(self) -> None:
        """End every open request that is not spared, and admit no more."""
        self._is_closed = True
        for scope, is_spared in self._scopes.items():
            if not is_spared():
                scope.cancel()

    def statistics(self) -> OpenRequestsStatistics:
        return OpenRequestsStatistics(num_open=len(self._scopes), is_closed=self._is_closed)
