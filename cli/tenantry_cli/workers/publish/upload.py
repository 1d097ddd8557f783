"""One upload: the files and their metadata, as multipart/form-data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import click
import httpx
import msgspec

from tenantry_cli.workers.api import ControlPlane, Refused
from tenantry_cli.workers.bundle import Bundle
from tenantry_cli.workers.config import Project
from tenantry_cli.workers.output import Screen

from .metadata import Wishes, metadata

CHUNK_BYTES = 1 << 16
_IMPORT_FAILED = 10021


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    id: str = ""
    number: int = 0
    startup_time_ms: float | None = None
    deployment_id: str | None = None
    """Of a worker's first upload: the id of its version, without dashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """A version that is there."""

    version_id: str
    number: int
    """0: the control plane does not say."""
    startup_ms: float | None
    took_s: float


def exists(plane: ControlPlane, name: str) -> bool:
    """Tell whether the account has a worker of that name."""
    try:
        plane.get(f"/workers/services/{name}", dict[str, Any])
    except Refused as refusal:
        if refusal.is_missing:
            return False
        raise
    return True


def upload_version(
    plane: ControlPlane,
    project: Project,
    bundle: Bundle,
    wishes: Wishes,
    screen: Screen,
    *,
    is_first: bool,
) -> Uploaded:
    """Upload a version; a worker's first is deployed at once. Raises ClickException."""
    path = f"/workers/scripts/{project.name}"
    if is_first:
        method, params = "PUT", {"excludeScript": "true", "bindings_inherit": "strict"}
    else:
        method, path, params = "POST", f"{path}/versions", {"bindings_inherit": "strict"}
    whole = plane.request(method, path, params=params, files=_parts(project, bundle, wishes))
    body = whole.read()
    started_s = time.monotonic()
    then = "Installing dependencies" if bundle.requirements.dependencies else "Importing"
    with screen.transfer("Uploading", len(body), then=then) as sent:
        request = httpx.Request(
            method,
            whole.url,
            headers=whole.headers,
            content=_in_chunks(body, sent),
        )
        try:
            page = plane.answer(request, _Answer)
        except Refused as refusal:
            raise _explained(refusal) from refusal
    for message in page.messages:
        screen.warn(message)
    answer = page.result
    return Uploaded(
        version_id=_version_id(answer),
        number=answer.number,
        startup_ms=answer.startup_time_ms,
        took_s=time.monotonic() - started_s,
    )


# Any: as httpx has files
def _parts(project: Project, bundle: Bundle, wishes: Wishes) -> list[tuple[str, Any]]:
    described = msgspec.json.encode(metadata(project, bundle, wishes))
    parts: list[tuple[str, Any]] = [("metadata", (None, described, "application/json"))]
    parts += [
        (module.name, (module.name, module.content, module.content_type))
        for module in bundle.modules
    ]
    return parts


def _in_chunks(body: bytes, sent: Callable[[int], None]) -> Iterator[bytes]:
    for start in range(0, len(body), CHUNK_BYTES):
        chunk = body[start : start + CHUNK_BYTES]
        yield chunk
        sent(len(chunk))


def _version_id(answer: _Answer) -> str:
    """Return a version's id in its usual form, with dashes."""
    said = answer.deployment_id or answer.id
    try:
        return str(UUID(said))
    except ValueError:
        return said


def _explained(refusal: Refused) -> click.ClickException:
    if refusal.has_code(_IMPORT_FAILED):
        return click.ClickException(f"the upload was refused:\n{refusal.message}")
    return refusal
