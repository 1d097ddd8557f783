"""A whole deploy: upload, traffic, triggers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import click
import httpx
import msgspec

from tenantry_cli.workers.api import ControlPlane, Refused
from tenantry_cli.workers.bundle import Bundle
from tenantry_cli.workers.config import Project, Route
from tenantry_cli.workers.output import Screen

from .metadata import Wishes
from .upload import Uploaded, exists, upload_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What serves, and where."""

    uploaded: Uploaded
    urls: tuple[str, ...]
    crons: tuple[str, ...]
    triggers_took_s: float


class _Subdomain(msgspec.Struct, frozen=True, kw_only=True):
    subdomain: str = ""


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    name: str


def deploy(
    plane: ControlPlane, project: Project, bundle: Bundle, wishes: Wishes, screen: Screen
) -> Deployed:
    """Upload a version, give it all traffic, and set the worker's triggers."""
    is_first = not exists(plane, project.name)
    _require_secrets(plane, project, wishes, is_first=is_first)
    uploaded = upload_version(plane, project, bundle, wishes, screen, is_first=is_first)
    if not is_first:
        give_traffic(plane, project.name, {uploaded.version_id: 100.0}, message=wishes.message)
    started_s = time.monotonic()
    try:
        urls = _set_triggers(plane, project, is_first=is_first)
    except Refused as refusal:
        raise click.ClickException(
            f"{refusal.message}\nVersion {uploaded.version_id} of {project.name} is deployed all the "
            "same; what of its address, routes and cron triggers comes after this is not set."
        ) from refusal
    return Deployed(
        uploaded=uploaded,
        urls=urls,
        crons=project.crons or (),
        triggers_took_s=time.monotonic() - started_s,
    )


def give_traffic(
    plane: ControlPlane,
    worker: str,
    split: dict[str, float],
    *,
    message: str | None,
    triggered_by: str | None = None,
) -> str:
    """Deploy versions, each with its percentage of traffic; return the deployment's id."""
    labels = {"workers/message": message, "workers/triggered_by": triggered_by}
    deployment = plane.send(
        "POST",
        f"/workers/scripts/{worker}/deployments",
        dict[str, Any],
        json={
            "strategy": "percentage",
            "versions": [
                {"version_id": version_id, "percentage": percentage}
                for version_id, percentage in split.items()
            ],
            "annotations": {key: label for key, label in labels.items() if label is not None},
        },
    )
    return str(deployment.get("id", ""))


def worker_url(plane: ControlPlane, worker: str) -> str:
    """Return the address of a worker that has no route of its own."""
    base = httpx.URL(plane.account.base_url)
    if base.host in ("localhost", "127.0.0.1", "::1"):
        subdomain = plane.get("/workers/subdomain", _Subdomain).subdomain
        host = f"{worker}.{subdomain or plane.account.account_id}.localhost"
        return str(base.copy_with(host=host, raw_path=b"/"))
    return str(base.copy_with(path=f"/workers/{plane.account.account_id}/{worker}/"))


def _require_secrets(
    plane: ControlPlane, project: Project, wishes: Wishes, *, is_first: bool
) -> None:
    if not project.required_secrets:
        return
    there = set(wishes.secrets)
    if not is_first:
        path = f"/workers/scripts/{project.name}/secrets"
        there |= {secret.name for secret in plane.get(path, list[_Named])}
    missing = [name for name in project.required_secrets if name not in there]
    if missing:
        how = (
            "give them along with --secrets-file" if is_first else "run `workerctl secret put NAME`"
        )
        raise click.ClickException(
            f"{project.source} requires secrets that {project.name} does not have: "
            f"{', '.join(missing)}; {how}"
        )


def _set_triggers(plane: ControlPlane, project: Project, *, is_first: bool) -> tuple[str, ...]:
    path = f"/workers/scripts/{project.name}"
    if project.observability is not None:
        settings = {"observability": project.observability}
        plane.order("PATCH", f"{path}/script-settings", json=settings)
    # as wrangler has it: routes of its own turn the common address off, unless it is asked for
    enabled = not project.routes if project.workers_dev is None else project.workers_dev
    subdomain = {"enabled": enabled, "previews_enabled": project.preview_urls is True}
    plane.order("POST", f"{path}/subdomain", json=subdomain)
    if project.routes is not None:
        routes = [{"pattern": _pattern(route)} for route in project.routes]
        plane.order("PUT", f"{path}/routes", json=routes)
    if project.crons is not None and (project.crons or not is_first):
        schedules = [{"cron": cron} for cron in project.crons]
        plane.order("PUT", f"{path}/schedules", json=schedules)
    addresses = [worker_url(plane, project.name)] if enabled else []
    return (*addresses, *map(_pattern, project.routes or ()))


def _pattern(route: Route) -> str:
    """Return a route's pattern; a custom domain is all of a host."""
    if route.custom_domain and "/" not in route.pattern:
        return f"{route.pattern}/*"
    return route.pattern
