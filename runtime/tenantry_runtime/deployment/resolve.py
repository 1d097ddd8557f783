"""From a deployment's file to what it comes to; whatever does not fit is refused by key."""

from __future__ import annotations

import os
from pathlib import Path

from tenantry_runtime.catalog import Catalog, CatalogEntry
from tenantry_runtime.core import Phase
from tenantry_runtime.edge.workers_config import (
    PartMisfit,
    WorkersConfig,
    has_tables,
    read_parts,
)
from tenantry_runtime.pool.tls import TlsFiles, is_unix

from .certificates import located, named_in
from .checks import check_names, check_store, check_whole
from .configurations import engine_config
from .explain import explain
from .file import DeploymentFile, NodePart
from .misfit import Misfit
from .node_address import NodeAddress, parse_address
from .offer import find_entry, offered
from .overrides import Overrides
from .plan import EDGE, PHASES, Deployment, Edge, Member, Node


def resolve(file: DeploymentFile, path: Path) -> Deployment:
    """Fill in what a file leaves out, and check it as a whole.

    `path` is absolute: relative ones start there. Raises `Misfit`.
    """
    return _Resolver(file, path).deployment()


class _Resolver:
    def __init__(self, file: DeploymentFile, path: Path) -> None:
        self._file = file
        self._path = path
        check_names(file.nodes)
        check_store(file.store)
        self._catalog: Catalog = offered(file.catalog, path.parent)
        self._overrides = Overrides(file.pools, file.nodes, self._catalog)

    def deployment(self) -> Deployment:
        deployment = Deployment(
            file=self._path,
            state_dir=self._at(self._file.state_dir),
            catalog=self._catalog,
            edge=Edge(
                state_dir=self._at(self._file.edge.state_dir or self._file.state_dir),
                store=self._file.store.url,
                tls=self._tls(EDGE, self._file.edge.tls),
                part=self._file.edge,
                workers=self._workers(self._file.workers),
            ),
            nodes=tuple(
                self._node(f"nodes[{place}]", part) for place, part in enumerate(self._file.nodes)
            ),
        )
        check_whole(deployment)
        return deployment

    def _workers(self, part: WorkersConfig | None) -> WorkersConfig | None:
        if part is None:
            return None
        if has_tables(part):
            try:
                read_parts(part)
            except PartMisfit as error:
                table = getattr(part, error.part)
                inner, problem = explain(error.error, table, error.type_)
                key = ".".join(filter(None, ["workers", error.part, inner]))
                raise Misfit(key, problem) from error
        return part.at(self._path.parent)

    def _node(self, key: str, part: NodePart) -> Node:
        members = tuple(
            member
            for member in self._members(key, part)
            if self._overrides.serves(part.name, member.model, member.phase)
        )
        if not members:
            problem = "pools leave it nothing to run; list it in pools, or take it out"
            raise Misfit(f"{key}.members", problem)
        node = Node(
            name=part.name,
            address=self._address(f"{key}.address", part.address),
            listen=self._listen(f"{key}.listen", part),
            members=members,
            tls=self._tls(part.name, part.tls),
            part=part,
            key=key,
        )
        try:
            engine_config(node)
        except ValueError as error:
            raise Misfit(key, str(error)) from error
        return node

    def _members(self, key: str, part: NodePart) -> tuple[Member, ...]:
        directories = {
            find_entry(f"{key}.directories", name, self._catalog).id: directory
            for name, directory in part.directories.items()
        }
        members: dict[tuple[str, Phase], Member] = {}
        for place, text in enumerate(part.members):
            member_key = f"{key}.members[{place}]"
            entry, phase = self._named(member_key, text)
            if (other := members.get((entry.id, phase))) is not None:
                raise Misfit(member_key, f"{text!r} is there already, as {other.key}; take one out")
            pool = self._overrides.of(entry.id, phase)
            members[entry.id, phase] = Member(
                model=entry.id,
                phase=phase,
                cache=pool.cache or part.cache,
                directory=self._at(directories.get(entry.id) or pool.directory or entry.directory),
                key=member_key,
            )
        return tuple(members.values())

    def _named(self, key: str, text: str) -> tuple[CatalogEntry, Phase]:
        model, _, name = text.rpartition(":")
        phase = next((phase for phase in PHASES if phase == name), None)
        if phase is None:
            examples = " or ".join(f'"{model or text}:{phase}"' for phase in PHASES)
            raise Misfit(key, f"{text!r} names no phase; write {examples}")
        return find_entry(key, model, self._catalog), phase

    def _address(self, key: str, text: str, *, is_called: bool = True) -> NodeAddress:
        try:
            return parse_address(text, self._path.parent, is_called=is_called)
        except ValueError as error:
            raise Misfit(key, f"{text!r} {error}") from error

    def _listen(self, key: str, part: NodePart) -> NodeAddress:
        text = part.address if part.listen is None else part.listen
        listen = self._address(key, text, is_called=False)
        if is_unix(text) != is_unix(part.address):
            raise Misfit(key, f"{text!r} and address must both be sockets, or both HOST:PORT")
        return listen

    def _tls(self, name: str, own: TlsFiles | None) -> TlsFiles | None:
        """Return a part's files: its own, or those with its name among the certificates."""
        if own is not None:
            return located(own, self._path.parent)
        if self._file.certificates is not None:
            return named_in(self._at(self._file.certificates), name)
        return None

    def _at(self, path: str) -> Path:
        return Path(os.path.normpath(self._path.parent / path))
