"""Bodies that become values: in memory, as much of them as their tenant may hold there."""

from __future__ import annotations

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import KvRefused
from tenantry_runtime.tenancy.kv_entry import MAX_VALUE_BYTES
from tenantry_runtime.workers.interface import ByteStream

from .places import Places

HELD_EACH = 256 << 20
"""Of each tenant: bytes of long values that are on their way, in or out."""
HELD_STEP = 1 << 20
"""In which a body counts for them that comes in."""


class Held:
    """A body that is read into memory, as much of it as its tenant may hold there."""

    def __init__(self, places: Places, tenant: TenantId) -> None:
        self._places = places
        self._tenant = tenant
        self._num_held = 0

    async def read(self, body: ByteStream) -> bytes:
        """Return the body. Raises `KvRefused` for one that is too long, here or anywhere."""
        read = bytearray()
        async for piece in body:
            read += piece
            if len(read) > MAX_VALUE_BYTES:
                raise KvRefused("value", f"Value length exceeds limit of {MAX_VALUE_BYTES}.", 413)
            while self._num_held < len(read):
                # without waiting: others may each have a part, and wait for the rest
                if not self._places.try_take(self._tenant, HELD_STEP):
                    problem = f"{HELD_EACH} bytes of values are being written and read already"
                    raise KvRefused("value", problem, 429)
                self._num_held += HELD_STEP
        return bytes(read)

    def give_back(self) -> None:
        if self._num_held:
            self._places.give_back(self._tenant, self._num_held)
            self._num_held = 0
