"""Which 16-bit slot stands for which tenant in a page's tag, on one node."""

from __future__ import annotations

from typing import NewType

OwnerSlot = NewType("OwnerSlot", int)

OWNER_BITS = 16
PUBLIC = OwnerSlot(0)
"""Owns what the operator shares on purpose; no tenant gets it."""
NOBODY = OwnerSlot((1 << OWNER_BITS) - 1)
"""Owns what is free; no tenant gets it."""


class OwnerSlots:
    """Gives a slot to each tenant with live pages, and takes it back with the last of them."""

    def __init__(self) -> None:
        self._slots: dict[str, OwnerSlot] = {}
        self._num_users: dict[str, int] = {}
        self._returned: list[OwnerSlot] = []
        self._num_ever = 1  # PUBLIC

    def acquire(self, tenant: str) -> OwnerSlot:
        """Return the tenant's slot; every call is paired with one `release`."""
        if tenant not in self._slots:
            self._slots[tenant] = self._unused()
            self._num_users[tenant] = 0
        self._num_users[tenant] += 1
        return self._slots[tenant]

    def release(self, tenant: str) -> None:
        self._num_users[tenant] -= 1
        if not self._num_users[tenant]:
            del self._num_users[tenant]
            self._returned.append(self._slots.pop(tenant))

    @property
    def tenants(self) -> dict[OwnerSlot, str]:
        """The tenant behind each slot that is taken."""
        return {slot: tenant for tenant, slot in self._slots.items()}

    @property
    def num_tenants(self) -> int:
        return len(self._slots)

    def _unused(self) -> OwnerSlot:
        if self._returned:
            return self._returned.pop()
        assert self._num_ever < NOBODY, "more tenants with live pages than slots"
        slot = OwnerSlot(self._num_ever)
        self._num_ever += 1
        return slot
