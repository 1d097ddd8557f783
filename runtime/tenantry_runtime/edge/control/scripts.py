"""Workers: put, show, list, change and delete."""

from __future__ import annotations

import logging
import uuid
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from tenantry_runtime.errors import InvalidInput, NoSuchRecord, ScriptRefused
from tenantry_runtime.tenancy.workers import NewVersion, Share, StoredVersion, Worker

from . import output
from .call import Call, paged, success, timestamp
from .errors import SERVICE
from .form import read_form
from .long_value import LongValue
from .metadata import Metadata, read_bindings
from .upload import add_version, receive_version, with_targets

MAX_TAGS = 32
MAX_TAG_CHARS = 256
MAX_OBSERVABILITY_BYTES = 4 << 10

_log = logging.getLogger(__name__)


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may change of a worker's settings; what is left out stays."""

    tags: tuple[str, ...] | None = None
    logpush: bool | None = None
    # Any: as the client has it
    observability: dict[str, Any] | None = None
    tail_consumers: tuple[Any, ...] | None = None


class BindingsChange(msgspec.Struct, frozen=True, kw_only=True):
    """New bindings for what is deployed; one that has no more than a name and a type stays."""

    # Any: of a shape that depends on its type
    bindings: tuple[dict[str, Any], ...] | None = None


async def put_script(call: Call) -> Response:
    """Upload a version and deploy it at once."""
    uploaded = await receive_version(call, is_new=True)
    version = uploaded.stored.version
    notes = call.notes("upload", version.message)
    workers = call.services.workers
    await workers.deployments.deploy(
        call.account, call.worker, [Share(version.version_id, 100.0)], notes
    )
    await _apply(call, uploaded.metadata)
    worker = await workers.scripts.get(call.account, call.worker)
    shown = output.script(worker, uploaded.stored)
    shown |= {
        "startup_time_ms": output.startup_ms(uploaded.stored.startup_ms),
        "deployment_id": output.etag(version),
    }
    return success(shown, messages=uploaded.messages)


async def _apply(call: Call, metadata: Metadata) -> None:
    change = SettingsChange(
        tags=metadata.tags, logpush=metadata.logpush, observability=metadata.observability
    )
    await _change_settings(call, change)


async def list_scripts(call: Call) -> Response:
    """List the account's workers."""
    workers = call.services.workers
    shown = []
    for worker in await workers.scripts.list(call.account):
        try:
            newest = await workers.versions.newest(call.account, worker.name, has_files=False)
        except NoSuchRecord:
            # deleted since
            continue
        shown.append(output.script(worker, newest))
    return success(shown)


async def show_service(call: Call) -> Response:
    """Show a worker as a service with one environment."""
    try:
        worker, newest = await _worker(call)
    except NoSuchRecord as error:
        raise NoSuchRecord(
            SERVICE, call.worker, "deploy it first, or see if the name is right"
        ) from error
    environment = {
        "environment": output.ENVIRONMENT,
        "created_on": timestamp(worker.created_ms),
        "modified_on": timestamp(worker.modified_ms),
        "script": output.script(worker, newest),
    }
    return success(
        {
            "id": worker.name,
            "created_on": timestamp(worker.created_ms),
            "modified_on": timestamp(worker.modified_ms),
            "usage_model": output.USAGE_MODEL,
            "default_environment": environment,
            "environments": [environment],
        }
    )


async def show_worker(call: Call) -> Response:
    """Show a worker as the newest API does."""
    worker, newest = await _worker(call)
    return success(
        {
            "id": worker.id,
            "name": worker.name,
            "created_on": timestamp(worker.created_ms),
            "updated_on": timestamp(worker.modified_ms),
            "subdomain": output.subdomain(worker),
            "references": await _references(call),
            **output.script_settings(worker),
            "deployed_on": timestamp(newest.version.created_ms),
        }
    )


async def show_content(call: Call) -> Response:
    """Answer with the files of a version, the newest unless one is asked for."""
    async with AsyncExitStack() as stack:
        # as a long value: all of it is in memory until it has been sent
        await stack.enter_async_context(call.services.uploads.hold(call.account))
        content, headers = await _content(call)
        return LongValue(content, headers, stack.pop_all())


async def _content(call: Call) -> tuple[bytes, dict[str, str]]:
    workers = call.services.workers
    version_id = call.request.query_params.get("version")
    if version_id is None:
        stored = await workers.versions.newest(call.account, call.worker)
    else:
        stored = await workers.versions.get(call.account, call.worker, version_id)
    boundary = uuid.uuid4().hex
    pieces = []
    for file in stored.version.files:
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="{file.path}"; '
            f'filename="{file.path}"\r\nContent-Type: {file.content_type}\r\n\r\n'
        )
        pieces += [head.encode(), await workers.blobs.get(file.digest), b"\r\n"]
    pieces.append(f"--{boundary}--\r\n".encode())
    headers = {
        "content-type": f"multipart/form-data; boundary={boundary}",
        "cf-entrypoint": stored.version.main_module,
    }
    return b"".join(pieces), headers


async def show_settings(call: Call) -> Response:
    """Show what holds for a worker and its newest version."""
    return success(output.settings(*await _worker(call)))


async def change_bindings(call: Call) -> Response:
    """Deploy the newest version with other bindings."""
    parts = await read_form(
        call.request,
        max_bytes=call.services.limits.body_bytes,
        max_parts=1,
        timeout_s=call.services.limits.upload_timeout_s,
    )
    part = parts.get("settings")
    if part is None:
        raise InvalidInput("settings", "is missing in the form")
    try:
        change = msgspec.json.decode(part.content, type=BindingsChange)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput("settings", f"is malformed: {error}") from error
    worker, newest = await _worker(call, has_files=True)
    if change.bindings is not None:
        newest = await _with_bindings(call, newest, change.bindings)
    return success(output.settings(worker, newest))


# Any: as they came
async def _with_bindings(
    call: Call, newest: StoredVersion, given: tuple[dict[str, Any], ...]
) -> StoredVersion:
    await call.services.workers.secrets.require_deployed(call.account, call.worker)
    kept = {"name", "type"}
    bindings = read_bindings(
        tuple(
            {"name": each.get("name"), "type": "inherit"} if set(each) <= kept else each
            for each in given
        )
    )
    targets = await with_targets(call, bindings.new)
    old = newest.version
    new = NewVersion(
        main_module=old.main_module,
        files=old.files,
        bindings=targets,
        secrets=bindings.secrets,
        inherited=bindings.inherited,
        limits=old.limits,
        keeps_environment=True,
        compatibility_date=old.compatibility_date,
        compatibility_flags=old.compatibility_flags,
    )
    made = await add_version(call, new, triggered_by="secret")
    shares = [Share(made.version.version_id, 100.0)]
    await call.services.workers.deployments.deploy(
        call.account, call.worker, shares, call.notes("secret")
    )
    return made


async def show_script_settings(call: Call) -> Response:
    """Show what holds for a worker whatever its version is."""
    worker = await call.services.workers.scripts.get(call.account, call.worker)
    return success(output.script_settings(worker))


async def change_script_settings(call: Call) -> Response:
    """Change what holds for a worker whatever its version is."""
    worker = await _change_settings(call, await call.json(SettingsChange))
    return success(output.script_settings(worker))


async def _change_settings(call: Call, change: SettingsChange) -> Worker:
    if change.tail_consumers:
        raise ScriptRefused("there are no tail workers here", remedy="Use `tail`")
    scripts = call.services.workers.scripts
    worker = await scripts.get(call.account, call.worker)
    given = {
        name: value
        for name in ("tags", "logpush", "observability")
        if (value := getattr(change, name)) is not None
    }
    if not given:
        return worker
    _check_settings(change)
    return await scripts.set_settings(call.account, call.worker, replace(worker.settings, **given))


def _check_settings(change: SettingsChange) -> None:
    tags = change.tags or ()
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in tags):
        raise InvalidInput("tags", f"are more than {MAX_TAGS}, or longer than {MAX_TAG_CHARS}")
    if len(msgspec.json.encode(change.observability)) > MAX_OBSERVABILITY_BYTES:
        raise InvalidInput("observability", f"has more than {MAX_OBSERVABILITY_BYTES} bytes")


async def delete_script(call: Call) -> Response:
    """End a worker, and forget what it said."""
    await call.services.workers.scripts.delete(call.account, call.worker, force=call.flag("force"))
    if call.services.logs is not None:
        try:
            await call.services.logs.forget(call.account, call.worker)
        except OSError as error:
            # the worker is gone; its logs will be, in time
            _log.error("cannot delete the logs of a worker that is deleted: %s", error)
    return success({"id": call.worker})


async def delete_service(call: Call) -> Response:
    """End a worker that is asked for as a service."""
    try:
        return await delete_script(call)
    except NoSuchRecord as error:
        raise NoSuchRecord(
            SERVICE, call.worker, "deploy it first, or see if the name is right"
        ) from error


async def show_references(call: Call) -> Response:
    """Show what would miss a worker."""
    await call.services.workers.scripts.get(call.account, call.worker)
    return success(await _references(call))


async def list_nothing(call: Call) -> Response:
    """List what there is none of here: a client asks before it changes something."""
    return paged(call, [])


# Any: JSON
async def _references(call: Call) -> dict[str, Any]:
    callers = await call.services.workers.scripts.callers_of(call.account, call.worker)
    incoming = [
        {"service": caller, "environment": output.ENVIRONMENT, "name": caller} for caller in callers
    ]
    return {
        "services": {"incoming": incoming, "outgoing": [], "pages_function": False},
        "durable_objects": [],
        "dispatch_outbounds": [],
        "dispatch_namespace_outbounds": [],
        "domains": [],
        "queues": [],
        "workers": [{"id": caller, "name": caller} for caller in callers],
    }


async def _worker(call: Call, *, has_files: bool = False) -> tuple[Worker, StoredVersion]:
    workers = call.services.workers
    worker = await workers.scripts.get(call.account, call.worker)
    newest = await workers.versions.newest(call.account, call.worker, has_files=has_files)
    return worker, newest
