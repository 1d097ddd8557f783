"""Versions and deployments."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from tenantry_runtime.errors import InvalidInput, NoSuchRecord
from tenantry_runtime.tenancy.workers import Share

from . import output
from .call import Call, page_info, page_of, success
from .metadata import MAX_MESSAGE_CHARS
from .upload import receive_version

NUM_DEPLOYMENTS = 10
"""That are listed: the latest."""


class VersionShare(msgspec.Struct, frozen=True, kw_only=True):
    version_id: str
    percentage: float


class DeploymentInput(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be deployed. `code_update_strategy` is for Durable Objects, and left alone."""

    strategy: str
    versions: tuple[VersionShare, ...]
    annotations: Mapping[str, str | None] = {}


async def post_version(call: Call) -> Response:
    """Upload a version without deploying it."""
    uploaded = await receive_version(call, is_new=False)
    return success(output.version(uploaded.stored), messages=uploaded.messages)


async def list_versions(call: Call) -> Response:
    """List versions, the newest first, a page at a time."""
    page, per_page = page_of(call)
    found = await call.services.workers.versions.list(call.account, call.worker)
    if not found:
        raise NoSuchRecord("worker", call.worker)
    shown = [output.version(each) for each in found[(page - 1) * per_page : page * per_page]]
    return success({"items": shown}, info=page_info(page, per_page, len(shown), len(found)))


async def show_version(call: Call) -> Response:
    """Show a version."""
    version_id = call.request.path_params["version"]
    versions = call.services.workers.versions
    if version_id == "latest":
        return success(
            output.version(await versions.newest(call.account, call.worker, has_files=False))
        )
    return success(output.version(await versions.get(call.account, call.worker, version_id)))


async def list_deployments(call: Call) -> Response:
    """List the latest deployments; the first is in force."""
    await call.services.workers.scripts.get(call.account, call.worker)
    found = await call.services.workers.deployments.list(call.account, call.worker)
    shown = [output.deployment(each) for each in found[:NUM_DEPLOYMENTS]]
    return success({"deployments": shown})


async def show_deployment(call: Call) -> Response:
    """Show a deployment."""
    wanted = call.request.path_params["deployment"]
    for found in await call.services.workers.deployments.list(call.account, call.worker):
        if found.id == wanted:
            return success(output.deployment(found))
    raise NoSuchRecord("deployment", wanted)


async def post_deployment(call: Call) -> Response:
    """Let versions answer from now on; an earlier version again is a rollback."""
    asked = await call.json(DeploymentInput)
    if asked.strategy != "percentage":
        raise InvalidInput("strategy", f"must be 'percentage', not {asked.strategy[:32]!r}")
    message = asked.annotations.get("workers/message") or ""
    if len(message) > MAX_MESSAGE_CHARS:
        raise InvalidInput(
            "annotations", f"the message has more than {MAX_MESSAGE_CHARS} characters"
        )
    shares = [Share(each.version_id, each.percentage) for each in asked.versions]
    made = await call.services.workers.deployments.deploy(
        call.account, call.worker, shares, call.notes("", message)
    )
    return success(output.deployment(made))
