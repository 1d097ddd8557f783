"""What a version of a worker is: its files, what it may call, and what it may take.

All of it is the runtime's knowledge, kept in the store and never asked of an isolate.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from tenantry_runtime.core import TenantId

WorkerName: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9_][a-z0-9-_]{0,62}$")]
BindingName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a bundle; its bytes are in the blob store under their digest."""

    path: str
    """Relative to the main module's folder, with slashes: `entry.py`, `python_modules/x/__init__.py`."""
    digest: str
    """SHA-256, in hex."""
    num_bytes: int
    content_type: str = "text/x-python"


class AiBinding(msgspec.Struct, frozen=True, kw_only=True, tag="ai"):
    """`env.AI`: the models."""

    name: BindingName


class TextBinding(msgspec.Struct, frozen=True, kw_only=True, tag="plain_text"):
    """A variable."""

    name: BindingName
    text: str


class JsonBinding(msgspec.Struct, frozen=True, kw_only=True, tag="json"):
    """A variable that is more than text."""

    name: BindingName
    json: Any


class SecretBinding(msgspec.Struct, frozen=True, kw_only=True, tag="secret_text"):
    """A secret; its value is kept elsewhere, sealed."""

    name: BindingName


class KvBinding(msgspec.Struct, frozen=True, kw_only=True, tag="kv_namespace"):
    """A namespace of keys and values."""

    name: BindingName
    namespace_id: str


class ServiceBinding(msgspec.Struct, frozen=True, kw_only=True, tag="service"):
    """Another worker of the same tenant."""

    name: BindingName
    service: WorkerName
    entrypoint: str = ""


class VersionBinding(msgspec.Struct, frozen=True, kw_only=True, tag="version_metadata"):
    """The version's own id, tag and time."""

    name: BindingName


Binding: TypeAlias = (
    AiBinding
    | TextBinding
    | JsonBinding
    | SecretBinding
    | KvBinding
    | ServiceBinding
    | VersionBinding
)


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an invocation, and an isolate, may take."""

    cpu_ms: Annotated[int, Meta(ge=1, le=300_000)] = 30_000
    """Of an invocation."""
    wall_s: Annotated[float, Meta(gt=0, le=900)] = 300.0
    """Of an invocation, from its beginning to its response's end."""
    memory_bytes: Annotated[int, Meta(ge=32 << 20, le=2 << 30)] = 128 << 20
    """Of an isolate."""
    subrequests: Annotated[int, Meta(ge=0, le=10_000)] = 1000
    """Calls of bindings that leave the isolate, in an invocation."""
    connections: Annotated[int, Meta(ge=1, le=64)] = 6
    """Open outbound requests of an invocation; more wait."""
    concurrency: Annotated[int, Meta(ge=1, le=1000)] = 100
    """Invocations in one isolate; more wait, bounded."""
    response_bytes: Annotated[int, Meta(ge=1)] = 256 << 20
    log_lines: Annotated[int, Meta(ge=0)] = 256
    """Of an invocation; what is more is counted and dropped."""
    wait_until_s: Annotated[float, Meta(gt=0, le=300)] = 30.0
    """That `wait_until` may go on after the response."""


class LockedPackage(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A package that a version's isolates start with, to be had anew on every edge."""

    name: str
    version: str
    sha256: str
    """Of its wheel, in hex."""


class WorkerVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable upload of a worker."""

    tenant: TenantId
    worker: str
    version_id: str
    """A UUID."""
    number: int
    """1 for a worker's first."""
    main_module: str
    files: tuple[SourceFile, ...]
    bindings: tuple[Binding, ...] = ()
    dependencies: str = ""
    """Digest of the set of dependencies that its isolates start with; "": none."""
    lock: tuple[LockedPackage, ...] = ()
    """What that set is made of."""
    limits: WorkerLimits = WorkerLimits()
    isolation: Literal["isolate", "request"] = "isolate"
    """`request`: a fresh isolate for each invocation."""
    compatibility_date: str = ""
    compatibility_flags: tuple[str, ...] = ()
    created_ms: int = 0
    tag: str = ""
    message: str = ""
