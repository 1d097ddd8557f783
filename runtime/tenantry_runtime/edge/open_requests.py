"""The requests that are open: how many there may be, and the way to end them all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

import anyio

from tenantry_runtime.errors import CapacityExceeded


@dataclass(frozen=True, slots=True)
class OpenRequestsStatistics:
    num_open: int
    is_closed: bool


class _Admission:
    """A place, held while a block runs: no generator, which would cost as much as the scope."""

    __slots__ = ("_is_spared", "_requests", "_scope")

    def __init__(self, requests: OpenRequests, is_spared: Callable[[], bool]) -> None:
        self._requests = requests
        self._is_spared = is_spared
        self._scope = anyio.CancelScope()

    def __enter__(self) -> anyio.CancelScope:
        self._requests.enter(self._scope, self._is_spared)
        return self._scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._requests.leave(self._scope)
        return self._scope.__exit__(kind, error, trace)


class OpenRequests:
    """Admits requests up to a limit, until it is closed."""

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        self._scopes: dict[anyio.CancelScope, Callable[[], bool]] = {}
        self._is_closed = False

    def admit(
        self, *, is_spared: Callable[[], bool] = lambda: False
    ) -> AbstractContextManager[anyio.CancelScope, bool]:
        """Hold a place while the block runs. `close` cancels the scope that it yields, unless spared.

        Raises `CapacityExceeded` when all places are taken, or after `close`.
        """
        return _Admission(self, is_spared)

    def enter(self, scope: anyio.CancelScope, is_spared: Callable[[], bool]) -> None:
        """Take a place. Raises as `admit`."""
        if self._is_closed or len(self._scopes) >= self._max_requests:
            raise CapacityExceeded
        self._scopes[scope] = is_spared

    def leave(self, scope: anyio.CancelScope) -> None:
        """Give a place back."""
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
