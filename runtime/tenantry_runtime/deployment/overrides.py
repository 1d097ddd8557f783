"""What a deployment's `pools` say of one model in one phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenantry_runtime.catalog import Catalog, CatalogEntry
from tenantry_runtime.core import Phase

from .explain import suggestion
from .file import NodePart, PoolPart
from .misfit import Misfit
from .offer import find_entry


class Overrides:
    """The tables of `pools`, by model and phase. Raises `Misfit` where they do not fit the nodes."""

    def __init__(
        self, parts: Sequence[PoolPart], nodes: Sequence[NodePart], catalog: Catalog
    ) -> None:
        self._parts: dict[tuple[str, Phase], PoolPart] = {}
        by_name = {node.name: node for node in nodes}
        for place, part in enumerate(parts):
            entry = find_entry(f"pools[{place}].model", part.model, catalog)
            if (entry.id, part.phase) in self._parts:
                problem = f"{part.model}:{part.phase} has a table already; join the two"
                raise Misfit(f"pools[{place}]", problem)
            self._parts[entry.id, part.phase] = part
            for node_place, name in enumerate(part.nodes or ()):
                key = f"pools[{place}].nodes[{node_place}]"
                _check_hosts(key, name, by_name, entry, part.phase)

    def of(self, model: str, phase: Phase) -> PoolPart:
        """Return what is said of a pool, or an empty table."""
        return self._parts.get((model, phase)) or PoolPart(model=model, phase=phase)

    def serves(self, node: str, model: str, phase: Phase) -> bool:
        """Whether a node's member is to be started."""
        nodes = self.of(model, phase).nodes
        return nodes is None or node in nodes


def _check_hosts(
    key: str, name: str, nodes: Mapping[str, NodePart], entry: CatalogEntry, phase: Phase
) -> None:
    if name not in nodes:
        raise Misfit(key, f"there is no node {name!r}; {suggestion(name, tuple(nodes))}")
    if not any(f"{model}:{phase}" in nodes[name].members for model in entry.names):
        wanted = f"{entry.names[-1]}:{phase}"
        raise Misfit(key, f'node {name!r} has no such member; add "{wanted}" to its members')
