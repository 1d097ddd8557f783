"""The keys that are read, as they stand in a file: wrangler's names and shapes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

BindingName = Annotated[
    str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="letters, digits and underscores")
]


class Ai(msgspec.Struct, frozen=True, kw_only=True):
    """`ai`."""

    binding: BindingName
    remote: bool = False
    staging: bool = False


class KvNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """One of `kv_namespaces`; without an id one is made at the first deploy."""

    binding: BindingName
    id: str | None = None
    preview_id: str | None = None
    remote: bool = False


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One of `services`."""

    binding: BindingName
    service: str
    entrypoint: str | None = None
    environment: str | None = None
    remote: bool = False


class VersionMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """`version_metadata`."""

    binding: BindingName


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One of `routes`, where it is more than a pattern."""

    pattern: str
    zone_name: str | None = None
    zone_id: str | None = None
    custom_domain: bool = False


class Triggers(msgspec.Struct, frozen=True, kw_only=True):
    """`triggers`."""

    crons: tuple[str, ...] | None = None


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """`secrets`."""

    required: tuple[str, ...] = ()


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`limits`."""

    cpu_ms: int | None = None
    subrequests: int | None = None


class PythonModules(msgspec.Struct, frozen=True, kw_only=True):
    """`python_modules`."""

    exclude: tuple[str, ...] = ("**/*.pyc",)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One of `rules`: which files go along, and as what."""

    type: Literal["PythonModule", "Text", "Data"]
    globs: tuple[str, ...]
    fallthrough: bool = False


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a file, or an environment in it, says of a worker."""

    name: str | None = None
    main: str | None = None
    compatibility_date: str = ""
    compatibility_flags: tuple[str, ...] = ()
    account_id: str | None = None
    workers_dev: bool | None = None
    preview_urls: bool | None = None
    route: str | Route | None = None
    routes: tuple[str | Route, ...] | None = None
    triggers: Triggers = Triggers()
    # JSON of the user's
    vars: dict[BindingName, Any] = {}
    secrets: Secrets = Secrets()
    ai: Ai | None = None
    kv_namespaces: tuple[KvNamespace, ...] = ()
    services: tuple[Service, ...] = ()
    version_metadata: VersionMetadata | None = None
    limits: Limits | None = None
    observability: dict[str, Any] | None = None
    python_modules: PythonModules = PythonModules()
    rules: tuple[Rule, ...] = ()
    keep_vars: bool = False
    isolation: Literal["isolate", "request"] | None = None
    """`request`: a fresh isolate for each invocation."""
