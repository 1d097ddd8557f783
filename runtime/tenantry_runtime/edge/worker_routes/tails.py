"""Tails as the control plane offers them: made with a token, then listened to at an address of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.control.services import TailAddress
from tenantry_runtime.workers.logs import TailBroker, read_filters
from tenantry_runtime.workers.logs.listener import PATH_PREFIX


class EdgeTails:
    """`edge.control.services.Tails`."""

    def __init__(self, broker: TailBroker, port: int, public_url: str | None = None) -> None:
        """`port` is where they are listened to; `public_url` is what leads there, None: the port."""
        self._broker = broker
        self._port = port
        self._public_url = public_url

    async def open(
        self,
        account: TenantId,
        worker: str,
        # Any: JSON as the client has it
        filters: Sequence[Mapping[str, Any]],
        *,
        base_url: str,
        client_ip: str,
    ) -> TailAddress:
        """Make a tail. Raises `InvalidInput` for a filter, `CapacityExceeded` where too many listen."""
        tail = self._broker.open(account, worker, read_filters(filters, client_ip=client_ip))
        url = f"{self._base(base_url)}{PATH_PREFIX}{tail.id}"
        return TailAddress(id=tail.id, url=url, expires_ms=int(tail.expires_s * 1000))

    async def close(self, account: TenantId, worker: str, tail_id: str) -> bool:
        """End a tail; False if the worker has none of the id."""
        tail = self._broker.find(tail_id)
        if tail is None or (tail.tenant, tail.worker) != (account, worker):
            return False
        self._broker.close(tail_id)
        return True

    def _base(self, asked_url: str) -> str:
        if self._public_url is not None:
            return self._public_url.rstrip("/")
        host = urlsplit(asked_url).hostname or "127.0.0.1"
        return f"ws://[{host}]:{self._port}" if ":" in host else f"ws://{host}:{self._port}"
