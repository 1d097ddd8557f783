"""The deployment of `workerctl dev`: everything on one machine, joined by Unix sockets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import UNSET

from tenantry_runtime.cache.budget import DEFAULT_MEMORY_FRACTION
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.catalog import Catalog
from tenantry_runtime.core import Phase
from tenantry_runtime.deployment import CatalogPart, DeploymentFile, EdgePart, NodePart, StorePart
from tenantry_runtime.edge.workers_config import WorkersConfig
from tenantry_runtime.supervisor.account import ACCOUNT
from tenantry_runtime.supervisor.address import Address

EDGE_GRACE_S = 1.0
"""How long the edge lets connections close after Ctrl-C; less than a child has before it is killed."""

ONE_NODE: tuple[str, ...] = ("node",)
POOLS: tuple[Phase, ...] = ("prefill", "decode")

COMMENT = """\
Made by workerctl dev, and made anew at its next start: to keep it, copy it elsewhere and
run workerctl serve with the copy."""


def one_machine(
    *,
    catalog: Catalog,
    catalog_file: Path | None,
    address: Address,
    state_dir: Path,
    store: str | None = None,
    cache: CacheName,
    device: str = "cpu",
    has_pools: bool,
    workers: WorkersConfig | None = None,
    socket: Callable[[str], Path],
) -> DeploymentFile:
    """Return a deployment of every model of the catalog.

    One node runs both phases, in one pool of pages, which is fastest; with `has_pools` each phase
    has a node, as on a cluster: prefill keeps its pages in BF16, and what decode keeps is handed
    over. `cache` is the format of the pages that answers are decoded from. All of it computes on
    `device`, of which two nodes get a half each if it is a GPU.
    """
    is_halved = has_pools and device != "cpu"

    def node(name: str, phases: tuple[Phase, ...], cache: CacheName) -> NodePart:
        members = [f"{entry.names[-1]}:{phase}" for entry in catalog.entries for phase in phases]
        return NodePart(
            name=name,
            address=f"unix:{socket(name)}",
            members=tuple(members),
            device=UNSET if device == "cpu" else device,
            memory_fraction=DEFAULT_MEMORY_FRACTION / 2 if is_halved else UNSET,
            cache=cache,
            # whoever ends it is the one who asks it things
            drain_s=0.0,
        )

    nodes: tuple[NodePart, ...] = (node("node", ("prefill", "decode"), cache),)
    if has_pools:
        nodes = (node("prefill", ("prefill",), "bf16"), node("decode", ("decode",), cache))
    return DeploymentFile(
        state_dir=str(state_dir),
        store=StorePart(url=store),
        catalog=CatalogPart(file=None if catalog_file is None else str(catalog_file.absolute())),
        edge=EdgePart(host=address.host, port=address.port, operator=ACCOUNT, grace_s=EDGE_GRACE_S),
        nodes=nodes,
        workers=workers,
    )
