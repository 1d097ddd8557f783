"""OTLP over HTTP to a tenant's collector, with nothing of the operator's.

The library's exporter adds the headers, certificates and proxies that the process's environment has for
the operator's own collector; what it would send to a tenant are the operator's secrets.
"""

from __future__ import annotations

import gzip
import http.client
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from .endpoints import SERVICE_NAME, TIMEOUT_S

MAX_RESPONSE_BYTES = 65_536

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Arrival(Enum):
    """What became of a batch, by the names that `Post` knows."""

    SUCCESS = 0
    FAILURE = 1


class TenantExporter(Generic[T]):
    """Sends each batch once, on a connection of its own. A redirect is a failure."""

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        *,
        encode: Callable[[Sequence[T]], bytes],
        what: str,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`encode` makes a request's body of a batch; `what` says what is sent, in the operator's log."""
        self._encode = encode
        self._what = what
        parts = urlsplit(endpoint)
        self._is_secure = parts.scheme == "https"
        self._address = parts.hostname or "", parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {
            "user-agent": SERVICE_NAME,
            **headers,
            "content-type": "application/x-protobuf",
            "content-encoding": "gzip",
        }
        self._timeout_s = timeout_s
        self._was_reached = True

    def export(self, batch: Sequence[T], /) -> Arrival:
        body = gzip.compress(self._encode(batch), compresslevel=1)
        connection = self._connection()
        try:
            connection.request("POST", self._path, body, self._headers)
            response = connection.getresponse()
            response.read(MAX_RESPONSE_BYTES)
            return self._said(f"status {response.status}", is_ok=200 <= response.status < 300)
        except (OSError, http.client.HTTPException) as error:
            return self._said(type(error).__name__, is_ok=False)
        finally:
            connection.close()

    def shutdown(self) -> None:
        """Nothing is tried again."""

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._address
        if not self._is_secure:
            return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(
            host, port, timeout=self._timeout_s, context=ssl.create_default_context()
        )

    def _said(self, answer: str, *, is_ok: bool) -> Arrival:
        # told once, not with every batch
        if self._was_reached and not is_ok:
            _log.warning(
                "a tenant's collector at %s does not take %s: %s",
                self._address[0],
                self._what,
                answer,
            )
        self._was_reached = is_ok
        return Arrival.SUCCESS if is_ok else Arrival.FAILURE
