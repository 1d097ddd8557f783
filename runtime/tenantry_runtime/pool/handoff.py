"""How a finished prompt's pages come from a prefill member to a decode member.

| prefill and decode member | hand-off |
|---|---|
| one pool, one cache format | `Adopt`: ownership moves, nothing is copied |
| pools of their own, one process | pages through a `PagePort` (`local_port.py`), in the decode member's format |
| on two nodes | the same through the node's own port (`shared_port.py`) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.pages import Lease
from tenantry_runtime.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What one side of a hand-off keeps its pages in."""

    pool: PageAllocator
    cache_format: str


class Handoff(Protocol):
    """One pairing of a prefill and a decode member."""

    def deliver(self, lease: Lease) -> Lease:
        """Return the decode member's lease on the same cache; the given one is void."""
        ...


@dataclass(frozen=True, slots=True)
class Adopt:
    """The decode member takes the prefill member's pages as they are."""

    pool: PageAllocator

    def deliver(self, lease: Lease) -> Lease:
        return self.pool.transfer(lease)


def adopt(source: Endpoint, target: Endpoint) -> Handoff:
    """Pair two members that share their pages; raises `ConfigurationError` when they do not."""
    if source.cache_format != target.cache_format:
        raise ConfigurationError(
            f"pages cannot be adopted: the prefill member's cache is {source.cache_format!r}, "
            f"the decode member's {target.cache_format!r}"
        )
    if source.pool is not target.pool:
        raise ConfigurationError("pages cannot be adopted: the two members have separate pools")
    return Adopt(source.pool)
