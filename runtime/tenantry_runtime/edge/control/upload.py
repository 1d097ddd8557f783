"""From an upload to a version that has been imported once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio
from msgspec.structs import replace

from tenantry_runtime.errors import (
    ConfigurationError,
    InvalidInput,
    NoSuchRecord,
    ScriptRefused,
    TenantryError,
)
from tenantry_runtime.tenancy.workers import NewVersion, StoredVersion
from tenantry_runtime.workers.interface import LoadError
from tenantry_runtime.workers.spec import (
    Binding,
    KvBinding,
    LockedPackage,
    ServiceBinding,
    SourceFile,
    WorkerVersion,
)

from .call import Call
from .form import Part, read_form
from .metadata import Metadata, read_bindings, read_limits, read_metadata
from .modules import Module, Modules, read_modules
from .project import check_interpreter, is_vendored, read_project, requirements_of
from .services import ControlServices
from .source_check import check_sources

METADATA = "metadata"

DRAFT = b"export default { fetch() {} }"
"""What wrangler uploads to have a worker that it can put a secret of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """A version that can be deployed."""

    stored: StoredVersion
    metadata: Metadata
    messages: Sequence[str]
    """What had no effect."""


async def receive_version(call: Call, *, is_new: bool) -> Uploaded:
    """Read an upload and add it as a version of the call's worker.

    Where not `is_new` the worker has to be there. Raises `ScriptRefused` and whatever its parts do.
    """
    services = call.services
    if not is_new:
        await services.workers.scripts.get(call.account, call.worker)
    # an upload that waits is not read, and holds nothing
    async with services.uploads.hold(call.account):
        parts = await read_form(
            call.request,
            max_bytes=services.limits.upload_bytes,
            # and the metadata
            max_parts=services.limits.modules + 1,
            timeout_s=services.limits.upload_timeout_s,
        )
        return await _receive(call, parts)


async def _receive(call: Call, parts: dict[str, Part]) -> Uploaded:
    part = parts.pop(METADATA, None)
    if part is None:
        raise ScriptRefused(f"the upload has no part {METADATA!r}")
    metadata, ignored = read_metadata(part.content)
    _check_main_module(call, metadata, parts)
    modules = read_modules(parts.values(), metadata.main_module)
    interpreter = call.services.interpreter
    requires_python = metadata.extensions.requires_python
    project = await read_project(modules.files, interpreter.path)
    check_interpreter(modules.files, project, interpreter.version, requires_python)
    await check_sources(modules.files, interpreter.path)
    declared = (*metadata.extensions.dependencies, *project.dependencies)
    wanted = requirements_of(modules.files, modules.requirements, declared)
    new = await _new_version(call, metadata, modules, wanted)
    stored = await add_version(call, new)
    messages = (*ignored, *modules.messages, *_unresolved(metadata, modules))
    return Uploaded(stored=stored, metadata=metadata, messages=messages)


def _unresolved(metadata: Metadata, modules: Modules) -> list[str]:
    if metadata.extensions.dependencies and is_vendored(modules.files):
        return ["dependencies are not resolved: they are in python_modules/ already"]
    return []


def _check_main_module(call: Call, metadata: Metadata, parts: Mapping[str, Part]) -> None:
    if not metadata.main_module:
        raise ScriptRefused("the metadata names no main_module")
    main = parts.get(metadata.main_module)
    if main is not None and main.content == DRAFT:
        raise ScriptRefused(
            f"there is no worker {call.worker!r} yet",
            remedy="Deploy it first, and then put its secrets",
        )


async def _new_version(
    call: Call, metadata: Metadata, modules: Modules, wanted: Sequence[str]
) -> NewVersion:
    bindings = read_bindings(metadata.bindings)
    targets = await with_targets(call, bindings.new)
    digest, lock = await _dependencies(call, wanted)
    return NewVersion(
        main_module=metadata.main_module,
        files=await _keep(call.services, modules.files),
        bindings=targets,
        secrets=bindings.secrets,
        keep_types=frozenset(metadata.keep_bindings),
        inherited=bindings.inherited,
        limits=read_limits(metadata.limits),
        dependencies=digest,
        lock=lock,
        isolation=metadata.extensions.isolation,
        keeps_environment=metadata.keep_assets and metadata.tenantry is None,
        compatibility_date=metadata.compatibility_date,
        compatibility_flags=metadata.compatibility_flags,
        tag=metadata.tag,
        message=metadata.message,
    )


async def with_targets(call: Call, bindings: Sequence[Binding]) -> tuple[Binding, ...]:
    """Return bindings with namespaces by their ids, which may be named by their titles.

    Raises `ScriptRefused` for a namespace or a worker that the account does not have.
    """
    return tuple([await _with_target(call, binding) for binding in bindings])


async def _with_target(call: Call, binding: Binding) -> Binding:
    services = call.services
    try:
        match binding:
            case KvBinding(namespace_id=asked):
                found = await services.kv.find_namespace(call.account, asked)
                return replace(binding, namespace_id=found.id)
            case ServiceBinding(service=service) if service != call.worker:
                await services.workers.scripts.get(call.account, service)
    except NoSuchRecord as error:
        raise ScriptRefused(f"binding {binding.name!r}: {error}") from error
    return binding


async def _dependencies(call: Call, wanted: Sequence[str]) -> tuple[str, tuple[LockedPackage, ...]]:
    if not wanted:
        return "", ()
    resolver = call.services.dependencies
    if resolver is None:
        raise ScriptRefused(
            f"the worker depends on {', '.join(wanted)[:200]}, and this installation resolves nothing",
            remedy="Vendor pure-Python packages in python_modules/, as pywrangler does",
        )
    made = await resolver.resolve(call.account, wanted)
    return made.digest, made.lock


async def _keep(services: ControlServices, files: Sequence[Module]) -> tuple[SourceFile, ...]:
    ordered = sorted(files, key=lambda file: file.path)
    digests = await services.workers.blobs.put_all([file.content for file in ordered])
    return tuple(
        SourceFile(
            path=file.path,
            digest=digest,
            num_bytes=len(file.content),
            content_type=file.content_type,
        )
        for file, digest in zip(ordered, digests, strict=True)
    )


async def add_version(
    call: Call, new: NewVersion, *, triggered_by: str = "upload"
) -> StoredVersion:
    """Add a version, import it once, and let it be seen; raise `ScriptRefused` if it cannot be."""
    versions = call.services.workers.versions
    notes = call.notes(triggered_by, new.message)
    try:
        version = await versions.add(call.account, call.worker, new, notes)
    except InvalidInput as error:
        raise ScriptRefused(str(error)) from error
    try:
        startup_ms = await _start(call.services, version)
        await versions.accept(version.version_id, startup_ms)
    except BaseException:
        # also where nobody waits any more
        with anyio.CancelScope(shield=True):
            await versions.discard(version.version_id)
        raise
    return await versions.get(call.account, call.worker, version.version_id)


async def _start(services: ControlServices, version: WorkerVersion) -> float:
    try:
        return await services.startup.try_load(version, cpu_ms=services.limits.startup_cpu_ms)
    except LoadError as error:
        raise refusal_of(error) from error
    except TenantryError:
        raise
    except OSError as error:
        raise ConfigurationError(f"no isolate can be started: {error}") from error


def refusal_of(error: LoadError) -> ScriptRefused:
    """Say where a version's import failed, as Python prints it."""
    trace = f"\n{error.trace.rstrip()}" if error.trace else ""
    return ScriptRefused(f"{error.name}: {error.message}{trace}", path=error.path, line=error.line)
