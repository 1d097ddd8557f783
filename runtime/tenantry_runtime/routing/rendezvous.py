"""Rendezvous hashing: every key ranks all nodes, and each node's rank depends on no other node.

So when a node goes, only the keys that it came first for move; when it returns, they come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol, TypeVar

SCORE_BYTES = 8


class Named(Protocol):
    """Anything that lies on a node."""

    @property
    def node(self) -> str: ...


T = TypeVar("T", bound=Named)


def session_key(tenant: str, model: str, session: str) -> bytes:
    """Return what names a session among all tenants and models."""
    parts = [part.encode() for part in (tenant, model, session)]
    # each with its length, so that no two triples run together to the same bytes
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def ranked(key: bytes, members: Iterable[T]) -> list[T]:
    """Return the members in the key's own order, first choice first, the same in every process."""
    return sorted(members, key=lambda member: _score(key, member.node), reverse=True)


def _score(key: bytes, node: str) -> tuple[bytes, str]:
    name = node.encode()
    # a keyed hash takes at most 64 bytes of key, so the long part is what is hashed
    digest = blake2b(len(name).to_bytes(4, "little") + name + key, digest_size=SCORE_BYTES)
    return digest.digest(), node
