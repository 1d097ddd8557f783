"""What may be kept under a key, and for how long: Cloudflare's limits, in its words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from tenantry_runtime.errors import KvRefused as KvRefused

MAX_KEY_BYTES = 512
MAX_VALUE_BYTES = 25 << 20
MAX_METADATA_BYTES = 1024
MIN_TTL_S = 60
MAX_TTL_S = 100 * 366 * 86_400
"""A century, so that no sum of times is beyond a 64-bit column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What is to be kept under a key. Made by `a_write`, which checks it."""

    key: str
    value: bytes
    metadata: bytes | None = None
    """JSON."""
    expires_ms: int | None = None
    """Unix time; None: never."""

    @property
    def num_bytes(self) -> int:
        """Return what it counts for in an account's sum."""
        return len(self.key.encode()) + len(self.value) + len(self.metadata or b"")


# Any: whatever JSON has, or what a caller takes for it
def a_write(
    key: str,
    value: bytes,
    *,
    now_ms: int,
    metadata: Any = None,
    expiration_s: int | None = None,
    ttl_s: int | None = None,
) -> Write:
    """Make a write that is within the limits; a `ttl_s` beats an `expiration_s`, a Unix time.

    Raises `KvRefused`.
    """
    check_key(key)
    if len(value) > MAX_VALUE_BYTES:
        problem = f"Value length of {len(value)} exceeds limit of {MAX_VALUE_BYTES}."
        raise KvRefused("value", problem, 413)
    return Write(
        key=key,
        value=value,
        metadata=_metadata(metadata),
        expires_ms=_expires_ms(now_ms, expiration_s, ttl_s),
    )


def check_key(key: str) -> bytes:
    """Return a key's UTF-8, or raise `KvRefused`."""
    if not key:
        raise KvRefused("key", "Key name cannot be empty.")
    if key in (".", ".."):
        raise KvRefused("key", f'"{key}" is not allowed as a key name.')
    encoded = encode(key, "key")
    if len(encoded) > MAX_KEY_BYTES:
        raise KvRefused(
            "key",
            f"UTF-8 encoded length of {len(encoded)} exceeds key length limit of {MAX_KEY_BYTES}.",
            414,
        )
    return encoded


def encode(text: str, field: str) -> bytes:
    """Return a text's UTF-8; raise `KvRefused` where it has none."""
    # four bytes a character at most, and no more of a hostile one is looked at
    if len(text) > MAX_VALUE_BYTES:
        raise KvRefused(field, f"has more than {MAX_VALUE_BYTES} characters", 413)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise KvRefused(field, "is no text that UTF-8 can write") from error


def _metadata(metadata: Any) -> bytes | None:
    if metadata is None:
        return None
    try:
        encoded = msgspec.json.encode(metadata)
        # workers get it by frames, which have no longer numbers than 64 bits
        msgspec.msgpack.encode(metadata)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise KvRefused("metadata", "Metadata must be serializable to JSON.") from error
    if len(encoded) > MAX_METADATA_BYTES:
        problem = f"Metadata length of {len(encoded)} exceeds limit of {MAX_METADATA_BYTES}."
        raise KvRefused("metadata", problem, 413)
    return encoded


def _expires_ms(now_ms: int, expiration_s: int | None, ttl_s: int | None) -> int | None:
    if ttl_s is not None:
        if ttl_s <= 0:
            problem = f"Invalid expiration_ttl of {ttl_s}. Please specify integer greater than 0."
            raise KvRefused("expiration_ttl", problem)
        if not MIN_TTL_S <= ttl_s <= MAX_TTL_S:
            bound = f"least {MIN_TTL_S}" if ttl_s < MIN_TTL_S else f"most {MAX_TTL_S}"
            problem = f"Invalid expiration_ttl of {ttl_s}. Expiration TTL must be at {bound}."
            raise KvRefused("expiration_ttl", problem)
        return now_ms + ttl_s * 1000
    if expiration_s is None:
        return None
    problem = f"Invalid expiration of {expiration_s}. "
    if expiration_s * 1000 <= now_ms:
        problem += "Please specify integer greater than the current number of seconds since the "
        raise KvRefused("expiration", f"{problem}UNIX epoch.")
    if expiration_s * 1000 < now_ms + MIN_TTL_S * 1000:
        problem += f"Expiration times must be at least {MIN_TTL_S} seconds in the future."
        raise KvRefused("expiration", problem)
    if expiration_s * 1000 > now_ms + MAX_TTL_S * 1000:
        problem += f"Expiration times must be at most {MAX_TTL_S} seconds in the future."
        raise KvRefused("expiration", problem)
    return expiration_s * 1000
