"""What the processes of a deployment are started with."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import UNSET

from tenantry_runtime.edge.config import EdgeConfig, EdgeNode
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.pool.config import NodeProcessConfig
from tenantry_runtime.pool.tls import TlsFiles

from .node_address import TcpAddress
from .plan import Deployment, Member, Node

_NOT_THE_ENGINES = {
    *("name", "address", "listen", "members", "cache", "directories", "tls", "drain_s"),
}
"""Fields of a node's table that say something else, or of its models."""


def engine_config(node: Node) -> NodeConfig:
    """Return what the node's step loop is built of; raise `ValueError` where values do not fit."""
    settings = {
        name: value
        for name, value in msgspec.structs.asdict(node.part).items()
        if name not in _NOT_THE_ENGINES and value is not UNSET
    }
    models = tuple(
        _source([member for member in node.members if member.model == model])
        for model in dict.fromkeys(member.model for member in node.members)
    )
    return NodeConfig(models=models, **settings)


def node_config(node: Node) -> NodeProcessConfig:
    return NodeProcessConfig(
        address=str(node.listen),
        reached_at="" if node.listen == node.address else str(node.address),
        engine=msgspec.Raw(msgspec.json.encode(engine_config(node))),
        tls=node.tls,
        drain_s=node.part.drain_s,
    )


def edge_config(deployment: Deployment, catalog: Path) -> EdgeConfig:
    """Return the edge's configuration; `catalog` is where `catalog_file` has been written."""
    edge = deployment.edge
    return EdgeConfig(
        host=edge.part.host,
        port=edge.part.port,
        nodes=tuple(_called(node, edge.tls) for node in deployment.nodes),
        state_dir=str(edge.state_dir),
        store=edge.store,
        catalog=str(catalog),
        show_routing=edge.part.show_routing,
        grace_s=edge.part.grace_s,
        limits=edge.part.limits,
        liveness=edge.part.liveness,
        incidents=edge.part.incidents,
        drift=edge.part.drift,
        operator=edge.part.operator,
        workers=edge.workers,
    )


def catalog_file(deployment: Deployment) -> bytes:
    """Return the catalog as JSON, with absolute directories."""
    return msgspec.json.format(msgspec.json.encode({"models": list(deployment.catalog.entries)}))


def _called(node: Node, tls: TlsFiles | None) -> EdgeNode:
    has_tls = isinstance(node.address, TcpAddress)
    return EdgeNode(address=str(node.address), tls=tls if has_tls else None)


def _source(members: list[Member]) -> ModelSource:
    """Return one model of a node, which runs in one phase or in both."""
    caches = {member.phase: member.cache for member in members}
    prefill = caches.get("prefill")
    cache = caches.get("decode", prefill)
    return ModelSource(
        id=members[0].model,
        directory=str(members[0].directory),
        phases=tuple(caches),
        cache=cache,
        # of one format, the two keep their pages in one pool, and nothing is copied between them
        prefill_cache=None if prefill == cache else prefill,
    )
