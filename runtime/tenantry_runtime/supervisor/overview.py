"""A table of a deployment's parts."""

from __future__ import annotations

from collections.abc import Collection

from tenantry_runtime.deployment import Deployment, Node
from tenantry_runtime.deployment.node_address import TcpAddress
from tenantry_runtime.deployment.plan import EDGE

from .address import edge_address


def overview(deployment: Deployment, here: Collection[str]) -> str:
    """Return one line a part: where it is, what it runs, and whether that is elsewhere."""
    rows = [(EDGE, edge_address(deployment).listening_url, "")]
    rows += [(node.name, _place(node), _members(deployment, node)) for node in deployment.nodes]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines: list[str] = []
    for row in rows:
        cells = [f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)]
        cells.append("" if row[0] in here else "elsewhere")
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return "".join(f"{line}\n" for line in lines)


def _place(node: Node) -> str:
    has_tls = node.tls is not None and isinstance(node.address, TcpAddress)
    return f"{node.address} (TLS)" if has_tls else str(node.address)


def _members(deployment: Deployment, node: Node) -> str:
    """Return models of the same phases and formats together."""
    names = {entry.id: entry.names[-1] for entry in deployment.catalog.entries}
    roles: dict[str, list[str]] = {}
    for member in node.members:
        roles.setdefault(member.model, []).append(f"{member.phase} {member.cache}")
    models: dict[str, list[str]] = {}
    for model, parts in roles.items():
        models.setdefault(" + ".join(parts), []).append(names[model])
    return "; ".join(f"{role}: {', '.join(served)}" for role, served in models.items())
