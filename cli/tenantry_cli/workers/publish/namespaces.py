"""KV namespaces that a configuration binds and that are not there yet: made at the deploy.

| `id` in the configuration | namespace |
|---|---|
| of a namespace of the account | that one |
| of another server, such as Cloudflare's | the one whose title it is: workers that share an id share it here too |
| none | the one that the worker had so far, else `<worker>-<binding>` |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tenantry_cli.workers.api import ControlPlane, Refused
from tenantry_cli.workers.api.control_plane import pages
from tenantry_cli.workers.config import Project

NAMESPACES = "/storage/kv/namespaces"


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    """A KV namespace, as listings have it."""

    id: str
    title: str


class _Settings(msgspec.Struct, frozen=True, kw_only=True):
    # Any: JSON
    bindings: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Those of the account."""

    by_id: dict[str, Namespace]
    by_title: dict[str, Namespace]

    def find(self, id_or_title: str) -> str | None:
        """Return the id of the namespace that has this id, or this title."""
        found = self.by_id.get(id_or_title) or self.by_title.get(id_or_title)
        return None if found is None else found.id


def namespaces_of(plane: ControlPlane) -> Namespaces:
    """List the account's namespaces."""
    found = list(pages(plane, NAMESPACES, list[Namespace]))
    return Namespaces({each.id: each for each in found}, {each.title: each for each in found})


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A namespace that was made."""

    binding: str
    title: str
    id: str
    is_foreign: bool
    """Whether the configuration has an id, which is of another server."""


def with_namespaces(plane: ControlPlane, project: Project) -> tuple[Project, list[Made]]:
    """Return the project with ids of namespaces that are there, and those that were made for it."""
    wanted = [each for each in project.bindings if each["type"] == "kv_namespace"]
    if not wanted:
        return project, []
    known = namespaces_of(plane)
    bound = (
        _bound(plane, project.name) if any("namespace_id" not in each for each in wanted) else {}
    )
    ids: dict[str, str] = {}
    made: list[Made] = []
    for binding in wanted:
        name, said = binding["name"], binding.get("namespace_id")
        title = said or title_of(project.name, name)
        found = known.find(said or bound.get(name, "")) or known.find(title)
        if found is None:
            new = plane.send("POST", NAMESPACES, Namespace, json={"title": title})
            made.append(Made(binding=name, title=title, id=new.id, is_foreign=said is not None))
            # two bindings may be of one namespace
            known.by_title[title] = new
        ids[name] = found or made[-1].id
    with_ids = replace(
        project,
        bindings=tuple(
            {**each, "namespace_id": ids[each["name"]]} if each in wanted else each
            for each in project.bindings
        ),
    )
    return with_ids, made


def title_of(worker: str, binding: str) -> str:
    """Return what a namespace is called that has no id in the configuration."""
    return f"{worker}-{binding.lower().replace('_', '-')}"


def _bound(plane: ControlPlane, worker: str) -> dict[str, str]:
    try:
        settings = plane.get(f"/workers/scripts/{worker}/settings", _Settings)
    except Refused as refusal:
        if refusal.is_missing:
            return {}
        raise
    return {
        each["name"]: each["namespace_id"]
        for each in settings.bindings
        if each.get("type") == "kv_namespace"
    }
