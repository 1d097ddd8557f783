"""Keys of secrets, written by hand."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from tenantry_runtime.tenancy.secret_keys import KEY_VARIABLE, Key, KeySource

FIRST, SECOND, THIRD = (Key(bytes([number]) * 32) for number in (1, 2, 3))


def in_base64(key: Key) -> str:
    return b64encode(key.material).decode()


def named_keys(*keys: Key) -> KeySource:
    """Return a source in the environment; the first encrypts."""
    return KeySource(
        Path("unused"), environ={KEY_VARIABLE: ",".join(in_base64(key) for key in keys)}
    )


def managed_keys(state_dir: Path) -> KeySource:
    """Return a source in a state directory."""
    return KeySource(state_dir, environ={})
