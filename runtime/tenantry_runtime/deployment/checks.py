"""What must hold between the parts of a deployment. Everything here raises `Misfit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tenantry_runtime.store_url import check_store_url

from .file import NodePart, StorePart
from .misfit import Misfit
from .node_address import NodeAddress, TcpAddress
from .pairing import pairing_problem, reach_problem
from .plan import EDGE, Deployment, Member, Node

MAX_NAME_CHARS = 63
"""As in a host's name, which a node's certificate may carry."""

_TAKEN = {
    EDGE: "the HTTP process",
    "ca": "the authority among the certificates",
    # of what lies beside the parts' own files
    "catalog": "the edge's catalog",
}

_ADVICE = "name the certificates' directory (certificates, filled by workerctl node certificate)"


def check_names(nodes: Sequence[NodePart]) -> None:
    """Refuse names that could not be files, or that two nodes share."""
    seen: dict[str, int] = {}
    for place, node in enumerate(nodes):
        key, name = f"nodes[{place}].name", node.name
        if not _is_file_name(name):
            raise Misfit(
                key,
                f"{name!r} names files too: it must be 1 to {MAX_NAME_CHARS} letters, digits, - "
                "and _",
            )
        if name in _TAKEN:
            raise Misfit(key, f"{name!r} is {_TAKEN[name]}; choose another")
        if name in seen:
            raise Misfit(key, f"{name!r} is the name of nodes[{seen[name]}]; choose another")
        seen[name] = place


def check_store(part: StorePart) -> None:
    """Refuse a URL that is none; what is wrong is said without it, as it may hold a password."""
    if part.url is not None:
        try:
            check_store_url(part.url)
        except ValueError as error:
            raise Misfit("store.url", str(error)) from error


def check_whole(deployment: Deployment) -> None:
    """Refuse a deployment that cannot serve all that it offers."""
    _check_addresses(deployment.nodes)
    for node in deployment.nodes:
        _check_one_directory(node)
    _check_phases(deployment)
    for (source, prefill), (target, decode) in _pairs(deployment):
        for problem in (pairing_problem(prefill, decode), reach_problem(source, target)):
            if problem is not None:
                raise Misfit(decode.key, problem)
    _check_tls(deployment)


def _check_addresses(nodes: Sequence[Node]) -> None:
    seen: dict[NodeAddress, str] = {}
    for node in nodes:
        if (other := seen.setdefault(node.address, node.key)) != node.key:
            problem = f"{node.address} is the address of {other}; choose another"
            raise Misfit(f"{node.key}.address", problem)


def _check_one_directory(node: Node) -> None:
    directories: dict[str, Path] = {}
    for member in node.members:
        known = directories.setdefault(member.model, member.directory)
        if known != member.directory:
            raise Misfit(
                member.key,
                f"a node loads {member.model} once, and its pools name two directories, {known} "
                f"and {member.directory}; use two nodes, or say {node.key}.directories",
            )


def _check_phases(deployment: Deployment) -> None:
    for entry in deployment.catalog.entries:
        pools = [pool for pool in deployment.pools if pool.model == entry.id]
        missing = [pool.phase for pool in pools if not pool.members]
        if missing:
            absent = " and no ".join(f"{phase} member" for phase in missing)
            wanted = " and ".join(f'"{entry.names[-1]}:{phase}"' for phase in missing)
            raise Misfit(
                "nodes",
                f"{entry.id} has no {absent}; add {wanted} to a node's members, or leave the "
                "model out of catalog.offer",
            )


def _pairs(deployment: Deployment) -> Iterator[tuple[tuple[Node, Member], tuple[Node, Member]]]:
    """Yield all that the two phases of a sequence may run on."""
    hosted = [(node, member) for node in deployment.nodes for member in node.members]
    for source, prefill in hosted:
        for target, decode in hosted:
            phases = (prefill.phase, decode.phase)
            if prefill.model == decode.model and phases == ("prefill", "decode"):
                yield (source, prefill), (target, decode)


def _check_tls(deployment: Deployment) -> None:
    over_tcp = [node for node in deployment.nodes if isinstance(node.address, TcpAddress)]
    for node in over_tcp:
        address = node.listen if node.address.is_local else node.address
        if not address.is_local and node.tls is None:
            raise Misfit(
                f"{node.key}.{'address' if address is node.address else 'listen'}",
                f"{address} is on a network, where both sides must prove who they are; "
                f"{_ADVICE}, or the node's own files (tls)",
            )
    if not any(node.tls for node in over_tcp):
        return
    # a node with certificates speaks TLS with all that are not at sockets, and needs one to call it
    for node in deployment.nodes:
        if node.tls is None:
            raise Misfit(f"{node.key}.tls", f"is missing, and other nodes have it; {_ADVICE}")
    if deployment.edge.tls is None:
        raise Misfit("edge.tls", f"is missing, and the nodes ask for it; {_ADVICE}")


def _is_file_name(name: str) -> bool:
    letters = name.replace("-", "").replace("_", "")
    return name.isascii() and letters.isalnum() and len(name) <= MAX_NAME_CHARS
