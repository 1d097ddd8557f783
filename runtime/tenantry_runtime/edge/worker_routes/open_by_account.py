"""How many requests each account has open, so that none takes the places of all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tenantry_runtime.errors import CapacityExceeded


class OpenByAccount:
    """Admits requests up to a limit each."""

    def __init__(self, max_each: int) -> None:
        self._max_each = max_each
        self._num_open: dict[str, int] = {}

    @contextmanager
    def admit(self, account: str) -> Iterator[None]:
        """Hold a place while the block runs; raise `CapacityExceeded` where the account has them all."""
        num_open = self._num_open.get(account, 0)
        if num_open >= self._max_each:
            raise CapacityExceeded
        self._num_open[account] = num_open + 1
        try:
            yield
        finally:
            # accounts that have none are not remembered
            if self._num_open[account] == 1:
                del self._num_open[account]
            else:
                self._num_open[account] -= 1
