"""A namespace of keys and values in memory, with the limits of the real one."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from tenantry.workers._errors import BindingError
from tenantry.workers._host import Body
from tenantry.workers._values import is_list

from ._host import FakeStream, read_body

MAX_KEY_BYTES = 512
MAX_VALUE_BYTES = 25 << 20
MAX_METADATA_BYTES = 1024
MIN_TTL_S = 60
MAX_LIST = 1000


class _Stored(NamedTuple):
    value: bytes
    metadata: Any
    expires_s: float | None


class FakeKV:
    """A KV binding; `FakeKV({"greeting": "hello"})` begins with values.

    `now` is its clock, in seconds of Unix time.
    """

    kind = "kv"

    def __init__(
        self, values: Mapping[str, str | bytes] = {}, *, now: Callable[[], float] = time.time
    ) -> None:
        self._now = now
        self._stored = {name: _Stored(_bytes(value), None, None) for name, value in values.items()}

    @property
    def values(self) -> dict[str, str]:
        """What is in it, as text."""
        return {name: each.value.decode("utf-8", "replace") for name, each in self._live().items()}

    async def answer(self, method: str, args: list[Any], body: Body) -> object:
        """Answer a call of the worker."""
        match method:
            case "get":
                key, options = args
                if is_list(key):
                    return {name: self._get(name, options) for name in key}
                return self._get(key, options)
            case "getWithMetadata":
                key, options = args
                stored = self._live().get(key)
                metadata = None if stored is None else stored.metadata
                return {"value": self._get(key, options, as_stream=False), "metadata": metadata}
            case "put":
                key, value, options = args
                self._put(key, await read_body(body) if value is None else _bytes(value), options)
                return None
            case "delete":
                self._stored.pop(args[0], None)
                return None
            case "list":
                return self._list(**args[0])
            case _:
                raise TypeError(f"a KV namespace has no {method!r}")

    def _get(self, key: str, options: Mapping[str, Any], *, as_stream: bool = True) -> Any:
        stored = self._live().get(key)
        if stored is None:
            return None
        match options["type"]:
            case "json":
                return json.loads(stored.value)
            case "text":
                return stored.value.decode("utf-8", "replace")
            case "stream" if as_stream:
                return FakeStream(_once(stored.value), "application/octet-stream")
            case _:
                return stored.value

    def _put(self, key: str, value: bytes, options: Mapping[str, Any]) -> None:
        if not 0 < len(key.encode()) <= MAX_KEY_BYTES or key in (".", ".."):
            raise TypeError(f"a key of KV has 1 to {MAX_KEY_BYTES} bytes, and is not . or ..")
        if len(value) > MAX_VALUE_BYTES:
            raise _failed(413, f"Value length of {len(value)} exceeds limit of {MAX_VALUE_BYTES}.")
        metadata = options.get("metadata")
        if len(json.dumps(metadata)) > MAX_METADATA_BYTES:
            raise _failed(413, f"Metadata exceeds limit of {MAX_METADATA_BYTES}.")
        expires_s: float | None = options.get("expiration")
        if (ttl_s := options.get("expirationTtl")) is not None:
            expires_s = self._now() + ttl_s
        if expires_s is not None and expires_s < self._now() + MIN_TTL_S:
            raise _failed(400, f"Expirations must be at least {MIN_TTL_S} seconds in the future.")
        self._stored[key] = _Stored(value, metadata, expires_s)

    def _list(self, prefix: str = "", limit: int = MAX_LIST, cursor: str = "") -> dict[str, Any]:
        live = self._live()
        names = sorted(name for name in live if name.startswith(prefix) and name > cursor)
        page = names[: min(limit, MAX_LIST)]
        found: dict[str, Any] = {"keys": [_listed(name, live[name]) for name in page]}
        found["list_complete"] = len(page) == len(names)
        if page and not found["list_complete"]:
            found["cursor"] = page[-1]
        return found

    def _live(self) -> dict[str, _Stored]:
        now_s = self._now()
        return {
            name: stored
            for name, stored in self._stored.items()
            if stored.expires_s is None or stored.expires_s > now_s
        }


def _failed(status: int, problem: str) -> BindingError:
    return BindingError("Error", f"KV PUT failed: {status} {problem}", status)


def _listed(name: str, stored: _Stored) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name}
    if stored.expires_s is not None:
        entry["expiration"] = int(stored.expires_s)
    if stored.metadata is not None:
        entry["metadata"] = stored.metadata
    return entry


async def _once(value: bytes) -> AsyncIterator[bytes]:
    yield value


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
