"""What a deployment comes to: every default filled in, every path absolute, every pool known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.catalog import Catalog
from tenantry_runtime.core import Phase
from tenantry_runtime.edge.workers_config import WorkersConfig
from tenantry_runtime.pool.tls import TlsFiles, is_loopback

from .file import EdgePart, NodePart
from .node_address import NodeAddress

EDGE = "edge"
"""The edge among the parts of a deployment; no node may have this name."""

PHASES: tuple[Phase, ...] = get_args(Phase)
"""Prefill, then decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One model in one phase on one node."""

    model: str
    """Canonical id."""
    phase: Phase
    cache: CacheName
    directory: Path
    key: str
    """Where the file says so."""

    def __str__(self) -> str:
        return f"{self.model}:{self.phase}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One process on one device, and its members."""

    name: str
    address: NodeAddress
    """At which edges and other nodes call it."""
    listen: NodeAddress
    members: tuple[Member, ...]
    tls: TlsFiles | None
    part: NodePart
    """What else the file says of it."""
    key: str

    @property
    def is_local(self) -> bool:
        return self.address.is_local


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The HTTP process."""

    state_dir: Path
    store: str | None
    """URL of the store; None: SQLite in `state_dir`."""
    tls: TlsFiles | None
    part: EdgePart
    workers: WorkersConfig | None = None
    """None: it runs none."""

    @property
    def is_local(self) -> bool:
        return is_loopback(self.part.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All members of one model in one phase."""

    model: str
    phase: Phase
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    file: Path
    state_dir: Path
    catalog: Catalog
    edge: Edge
    nodes: tuple[Node, ...]

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Of every model of the catalog: prefill, then decode."""
        return tuple(
            Pool(model=entry.id, phase=phase, members=self._members(entry.id, phase))
            for entry in self.catalog.entries
            for phase in PHASES
        )

    @property
    def part_names(self) -> tuple[str, ...]:
        return (EDGE, *(node.name for node in self.nodes))

    def _members(self, model: str, phase: Phase) -> tuple[Member, ...]:
        return tuple(
            member
            for node in self.nodes
            for member in node.members
            if (member.model, member.phase) == (model, phase)
        )
