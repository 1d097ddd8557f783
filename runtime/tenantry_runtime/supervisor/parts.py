"""Which parts of a deployment run here, and what their processes are started with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tenantry_runtime.deployment.configurations import catalog_file, edge_config, node_config
from tenantry_runtime.deployment.explain import suggestion
from tenantry_runtime.deployment.node_address import UnixAddress
from tenantry_runtime.deployment.plan import EDGE, Deployment, Node
from tenantry_runtime.errors import ConfigurationError, DeploymentError
from tenantry_runtime.pool.tls import TlsFiles

from .children import EXIT_GRACE_S
from .state import StateDirectory

EXIT_MARGIN_S = 0.8
"""For what a process owes at its end, once nobody is waited for any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Modules:
    """What runs as a node and as the edge: `python -m MODULE CONFIG.json`."""

    node: str = "tenantry_runtime.pool"
    edge: str = "tenantry_runtime.edge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process to start."""

    name: str
    module: str
    config: Path
    grace_s: float
    """Between SIGTERM and SIGKILL."""


def chosen_parts(deployment: Deployment, only: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of the parts to start: those asked for, or those that are here alone.

    Raises `ConfigurationError` where there is nothing to start, or a name is unknown.
    """
    known = deployment.part_names
    for name in only:
        if name not in known:
            raise ConfigurationError(
                f"{deployment.file} has no part {name!r}; {suggestion(name, known)}"
            )
    if only:
        return tuple(name for name in known if name in only)
    local = {node.name for node in deployment.nodes if node.is_local}
    if deployment.edge.is_local:
        local.add(EDGE)
    if not local:
        options = " ".join(f"--only {name}" for name in known)
        raise ConfigurationError(
            f"no part of {deployment.file} is at a loopback address, so that it does not say what "
            f"runs here; choose of: {options}"
        )
    return tuple(name for name in known if name in local)


def check_present(deployment: Deployment, names: Sequence[str]) -> None:
    """Raise `DeploymentError` when a file that the parts need is not on this machine."""
    file = str(deployment.file)
    for node in _nodes(deployment, names):
        for member in node.members:
            if not member.directory.is_dir():
                problem = f"the checkpoint {member.directory} of {member} is not on this machine"
                raise DeploymentError(file, member.key, problem)
        _check_tls(file, f"{node.key}.tls", node.name, node.tls)
    if EDGE in names:
        for entry in deployment.catalog.entries:
            # for its tokenizer and its template
            if not Path(entry.directory).is_dir():
                problem = f"the checkpoint {entry.directory} of {entry.id} is not on this machine"
                raise DeploymentError(file, "catalog", problem)
        _check_tls(file, "edge.tls", EDGE, deployment.edge.tls)


def write_parts(
    deployment: Deployment, names: Sequence[str], state: StateDirectory, modules: Modules
) -> tuple[Part, ...]:
    """Write the parts' configurations, nodes first."""
    parts: list[Part] = []
    for node in _nodes(deployment, names):
        if isinstance(node.address, UnixAddress):
            node.address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = _written(state, node.name, msgspec.json.encode(node_config(node)))
        parts.append(_part(node.name, modules.node, config, node.part.drain_s))
    if EDGE in names:
        catalog = _written(state, "catalog", catalog_file(deployment))
        config = _written(state, EDGE, msgspec.json.encode(edge_config(deployment, catalog)))
        parts.append(_part(EDGE, modules.edge, config, deployment.edge.part.grace_s))
    return tuple(parts)


def _part(name: str, module: str, config: Path, own_s: float) -> Part:
    """Give a part the time that it gives to those who wait for it, and some to end."""
    grace_s = max(EXIT_GRACE_S, own_s + EXIT_MARGIN_S)
    return Part(name=name, module=module, config=config, grace_s=grace_s)


def _nodes(deployment: Deployment, names: Sequence[str]) -> list[Node]:
    return [node for node in deployment.nodes if node.name in names]


def _check_tls(file: str, key: str, name: str, tls: TlsFiles | None) -> None:
    if tls is None:
        return
    for path in (tls.ca, tls.certificate, tls.key):
        if not Path(path).is_file():
            raise DeploymentError(
                file,
                key,
                f"{path} is not on this machine; take it there, or make it: "
                f"workerctl node certificate {name} --ca {Path(tls.ca).parent} --host HOST",
            )


def _written(state: StateDirectory, name: str, config: bytes) -> Path:
    path = state.run / f"{name}.json"
    path.write_bytes(msgspec.json.format(config))
    return path
