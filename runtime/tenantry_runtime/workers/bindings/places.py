"""Places of which each tenant has a few, so that none takes the room of all."""

from __future__ import annotations

from collections import deque

import anyio

from tenantry_runtime.core import TenantId


class Places:
    """So many for each tenant; who finds too few free waits for its own tenant's, first come first."""

    def __init__(self, num_each: int) -> None:
        self._num_each = num_each
        self._tenants: dict[TenantId, _Tenant] = {}

    async def take(self, tenant: TenantId, num: int = 1) -> None:
        """Take some at once, which are to be given back; more than there are is all there are."""
        if self.try_take(tenant, num):
            return
        known = self._tenants[tenant]
        waiting = _Waiting(min(num, self._num_each))
        known.waiting.append(waiting)
        try:
            await waiting.has_come.wait()
        except BaseException:
            if waiting.has_come.is_set():
                self.give_back(tenant, num)
            else:
                known.waiting.remove(waiting)
                self._pass_on(tenant, known)
            raise

    def try_take(self, tenant: TenantId, num: int = 1) -> bool:
        """Take some if they are free and nobody waits; say whether they were."""
        known = self._tenants.setdefault(tenant, _Tenant(self._num_each))
        num = min(num, self._num_each)
        if known.waiting or known.num_free < num:
            return False
        known.num_free -= num
        return True

    def give_back(self, tenant: TenantId, num: int = 1) -> None:
        if not num:
            # who had none may be unknown by now
            return
        known = self._tenants[tenant]
        known.num_free += min(num, self._num_each)
        self._pass_on(tenant, known)

    def _pass_on(self, tenant: TenantId, known: _Tenant) -> None:
        while known.waiting and known.waiting[0].num <= known.num_free:
            next_one = known.waiting.popleft()
            known.num_free -= next_one.num
            next_one.has_come.set()
        # tenants that use none are not remembered
        if known.num_free == self._num_each and not known.waiting:
            self._tenants.pop(tenant, None)


class _Tenant:
    __slots__ = ("num_free", "waiting")

    def __init__(self, num_free: int) -> None:
        self.num_free = num_free
        self.waiting: deque[_Waiting] = deque()


class _Waiting:
    __slots__ = ("has_come", "num")

    def __init__(self, num: int) -> None:
        self.num = num
        self.has_come = anyio.Event()
