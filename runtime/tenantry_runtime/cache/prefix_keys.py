"""Names of full pages of a tenant's prompts, by which routing knows who has them. No torch.

A page's key is a 64-bit hash of the tenant and of all tokens up to the page's end:

| key | is the hash of | personalization |
|---|---|---|
| root | the tenant's name in UTF-8 | `tenant` |
| of a page | the key before it (little-endian uint64), then the page's 64 token ids (little-endian uint32) | `page` |

The hash is BLAKE2b with a digest of 8 bytes, read as a little-endian unsigned integer. It is
personalized so that no name of a tenant has the key of another's page: whoever may choose its own
name could have its first pages taken for those that follow.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from hashlib import blake2b

from tenantry_runtime.core import PAGE_TOKENS

KEY_BYTES = 8


def root_key(tenant: str) -> int:
    """Return the key that a tenant's first pages follow."""
    return _hash(tenant.encode(), b"tenant")


def next_key(key: int, page: bytes) -> int:
    """Return the key of a page (`token_bytes` of its tokens) behind the page of `key`."""
    return _hash(key.to_bytes(KEY_BYTES, "little") + page, b"page")


def page_keys(tenant: str, token_ids: Sequence[int]) -> list[int]:
    """Return the key of each full page of a prompt."""
    keys: list[int] = []
    key = root_key(tenant)
    for start in range(0, len(token_ids) - PAGE_TOKENS + 1, PAGE_TOKENS):
        key = next_key(key, token_bytes(token_ids[start : start + PAGE_TOKENS]))
        keys.append(key)
    return keys


def token_bytes(token_ids: Sequence[int]) -> bytes:
    """Return token ids as little-endian uint32."""
    return _little_endian(array("I", token_ids)).tobytes()


def page_bytes(tokens: bytes) -> bytes:
    """Return what `token_bytes` makes of token ids that are words in this machine's order."""
    return tokens if sys.byteorder == "little" else token_bytes(array("I", tokens))


def pack_keys(keys: Sequence[int]) -> bytes:
    """Return keys as little-endian uint64."""
    return _little_endian(array("Q", keys)).tobytes()


def unpack_keys(packed: bytes) -> list[int]:
    """Raise `ValueError` when the bytes are no whole number of keys."""
    return _little_endian(array("Q", packed)).tolist()


def _hash(content: bytes, person: bytes) -> int:
    digest = blake2b(content, digest_size=KEY_BYTES, person=person).digest()
    return int.from_bytes(digest, "little")


def _little_endian(words: array[int]) -> array[int]:
    """Swap the bytes of each word where the machine's order is another; its own inverse."""
    if sys.byteorder == "big":
        words.byteswap()
    return words
