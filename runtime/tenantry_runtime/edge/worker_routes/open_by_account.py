"""How many requests each account has open, so that none takes the places of all."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tenantry_runtime.errors import CapacityExceeded


class OpenByAccount:
    """Admits requests up to a limit each."""

    def __init__(self, max_each: int) -> None:
        self._max_each = max_each
        self._num_open: dict[str, int] = {}

    def admit(self, account: str) -> AbstractContextManager[None, None]:
        """Hold a place while the block runs; raise `CapacityExceeded` where the account has them all."""
        return _Place(self, account)

    def enter(self, account: str) -> None:
        """Take a place. Raises as `admit`."""
        num_open = self._num_open.get(account, 0)
        if num_open >= self._max_each:
            raise CapacityExceeded
        self._num_open[account] = num_open + 1

    def leave(self, account: str) -> None:
        """Give a place back."""
        # accounts that have none are not remembered
        if self._num_open[account] == 1:
            del self._num_open[account]
        else:
            self._num_open[account] -= 1


class _Place:
    __slots__ = ("_account", "_accounts")

    def __init__(self, accounts: OpenByAccount, account: str) -> None:
        self._accounts = accounts
        self._account = account

    def __enter__(self) -> None:
        self._accounts.enter(self._account)

    def __exit__(self, *_: object) -> None:
        self._accounts.leave(self._account)
