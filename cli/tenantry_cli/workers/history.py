"""The versions and deployments of a worker: fetched, and shown as wrangler shows them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

import click

from tenantry_cli.printable import printable

from .api import ControlPlane, Refused
from .api.records import Deployment, Deployments, Version, Versions
from .output import Screen

T = TypeVar("T")

NO_WORKER, NO_SERVICE = 10007, 10090
"""Codes of a worker that is not there; versions and secrets have codes of their own."""

_NEWEST_NOT_DEPLOYED = 10215

SHOWN = 10
"""Of the newest, as wrangler lists them."""


def versions_of(plane: ControlPlane, worker: str) -> list[Version]:
    """Return the newest versions, the newest first."""
    return of_worker(plane, worker, "/versions", Versions).items


def version_of(plane: ControlPlane, worker: str, version_id: str) -> Version:
    """Return one version, with what it is made of."""
    return of_worker(plane, worker, f"/versions/{quote(version_id, safe='')}", Version)


def deployments_of(plane: ControlPlane, worker: str) -> list[Deployment]:
    """Return the newest deployments; the first is the one that holds."""
    return of_worker(plane, worker, "/deployments", Deployments).deployments


def of_worker(
    plane: ControlPlane,
    worker: str,
    path: str,
    type: type[T],
    *,
    params: Mapping[str, str] | None = None,
) -> T:
    """Get what is below a worker's path; one that is not there is said in plain words."""
    try:
        return plane.get(f"/workers/scripts/{quote(worker, safe='')}{path}", type, params=params)
    except Refused as refusal:
        raise explained(refusal, worker) from refusal


def explained(refusal: Refused, worker: str) -> click.ClickException:
    """Return what to raise for a refusal of something below a worker's path."""
    if refusal.has_code(NO_WORKER, NO_SERVICE):
        return click.ClickException(
            f"there is no worker {worker!r} in this account; `workerctl deploy` makes it"
        )
    if refusal.has_code(_NEWEST_NOT_DEPLOYED):
        return click.ClickException(
            f"{refusal.message}\n`workerctl versions list` and `versions deploy` give the newest "
            "version all traffic"
        )
    return refusal


def show_version(version: Version, screen: Screen) -> None:
    """Show a version's head."""
    screen.say(f"Version ID:  {version.id}", bold=True)
    if version.number:
        screen.say(f"Number:      {version.number}")
    screen.say(f"Created:     {_moment(version.metadata.created_on)}")
    screen.say(f"Author:      {_or_dash(version.metadata.author)}")
    screen.say(f"Source:      {_or_dash(version.metadata.source)}")
    screen.say(f"Tag:         {_or_dash(version.tag)}")
    screen.say(f"Message:     {_or_dash(version.message)}")


def show_deployment(deployment: Deployment, known: dict[str, Version], screen: Screen) -> None:
    """Show a deployment, and of its versions what is known."""
    screen.say(f"Created:     {_moment(deployment.created_on)}", bold=True)
    screen.say(f"Author:      {_or_dash(deployment.author_email)}")
    screen.say(f"Source:      {_or_dash(deployment.source)}")
    screen.say(f"Message:     {_or_dash(deployment.message)}")
    for index, share in enumerate(deployment.versions):
        label = "Version(s):  " if index == 0 else " " * 13
        screen.say(f"{label}({share.percentage:g}%) {share.version_id}")
        version = known.get(share.version_id)
        if version is not None:
            screen.say(f"{'Created:':>25}  {_moment(version.metadata.created_on)}")
            screen.say(f"{'Tag:':>25}  {_or_dash(version.tag)}")
            screen.say(f"{'Message:':>25}  {_or_dash(version.message)}")
    screen.say()


# Any: JSON
def version_document(version: Version) -> dict[str, Any]:
    """Describe a version for programs."""
    return {
        "id": version.id,
        "number": version.number,
        "created": version.metadata.created_on,
        "author": version.metadata.author,
        "source": version.metadata.source,
        "tag": version.tag,
        "message": version.message,
    }


def deployment_document(deployment: Deployment) -> dict[str, Any]:
    """Describe a deployment for programs."""
    return {
        "id": deployment.id,
        "created": deployment.created_on,
        "author": deployment.author_email,
        "source": deployment.source,
        "message": deployment.message,
        "versions": [
            {"version_id": share.version_id, "percentage": share.percentage}
            for share in deployment.versions
        ],
    }


def _moment(iso: str) -> str:
    try:
        return datetime.fromisoformat(iso).strftime("%Y-%m-%d %H:%M:%S UTC")
    except ValueError:
        return _or_dash(iso)


def _or_dash(text: str) -> str:
    return printable(" ".join(text.split())) or "-"
