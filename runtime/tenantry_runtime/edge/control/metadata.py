"""What an upload says of itself: the part `metadata`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn

import msgspec

from tenantry_runtime.errors import ScriptRefused
from tenantry_runtime.tenancy.secrets import Plaintext
from tenantry_runtime.tenancy.workers.names import MAX_BINDINGS, can_be_known
from tenantry_runtime.workers.spec import (
    AiBinding,
    Binding,
    JsonBinding,
    KvBinding,
    SecretBinding,
    ServiceBinding,
    TextBinding,
    VersionBinding,
    WorkerLimits,
)

MAX_METADATA_BYTES = 1 << 20
MAX_MESSAGE_CHARS = 1024
MAX_TAG_CHARS = 128

_KEEP_STATE = "Keep state in a KV namespace"
REFUSED_BINDINGS: Mapping[str, tuple[str, str]] = {
    "d1": ("D1", _KEEP_STATE),
    "r2_bucket": ("R2", f"{_KEEP_STATE}, which takes values of up to 25 MiB"),
    "durable_object_namespace": ("a Durable Object", _KEEP_STATE),
    "queue": ("a queue", "Call another worker through a service binding, or use a cron trigger"),
    "workflow": ("a workflow", "Use a cron trigger and a KV namespace"),
    "vectorize": ("Vectorize", "Keep vectors in a KV namespace, or call a service with `fetch`"),
    "hyperdrive": ("Hyperdrive", "Call a service with `fetch`"),
    "analytics_engine": ("Analytics Engine", "Print what you count: logs are kept"),
    "browser": ("Browser Rendering", "Call a service with `fetch`"),
    "images": ("Images", "Call a service with `fetch`"),
    "media": ("Media", "Call a service with `fetch`"),
    "stream": ("Stream", "Call a service with `fetch`"),
    "assets": (
        "a binding of static assets",
        "Serve files from the worker: they may be uploaded with it",
    ),
    "wasm_module": ("WebAssembly", "Use a Python package"),
    "text_blob": ("a text blob", "Upload the file as a module of text/plain and open it"),
    "data_blob": ("a data blob", "Upload the file as a module and open it"),
    "secret_key": ("a secret key", "Keep the key as a secret text"),
    "secrets_store_secret": ("Secrets Store", "Use `secret put`"),
    "mtls_certificate": ("an mTLS certificate", "Call a service with `fetch`"),
    "dispatch_namespace": ("Workers for Platforms", "Call a worker through a service binding"),
    "send_email": ("Email", "Call a service with `fetch`"),
    "ratelimit": ("a rate limit", "Count in a KV namespace"),
    "pipelines": ("a pipeline", "Call a service with `fetch`"),
    "tail_consumer": ("a tail worker", "Use `tail`, or the kept logs"),
}
"""Kinds of bindings that there are elsewhere: what they are called, and what to do instead."""

REFUSED_KEYS: Mapping[str, tuple[str, str]] = {
    "body_part": (
        "JavaScript in the service worker format does not run here",
        "Write the worker in Python: a main module like src/entry.py",
    ),
    "migrations": ("Durable Objects are not available here", _KEEP_STATE),
    "containers": ("containers are not available here", "Remove them from the configuration"),
    "assets": ("static assets are not available here", REFUSED_BINDINGS["assets"][1]),
    "tail_consumers": ("tail workers are not available here", "Use `tail`, or the kept logs"),
    "streaming_tail_consumers": ("tail workers are not available here", "Use `tail`"),
    "capnp_schema": ("Cap'n Proto schemas are not available here", "Remove it"),
}

WITHOUT_EFFECT = frozenset({"placement", "logpush", "cache_options"})
"""Settings that mean nothing where there is one place."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the configuration's `limits` may have."""

    cpu_ms: int | None = None
    subrequests: int | None = None


class Extensions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Cloudflare's metadata has no key for; `workerctl` sends it."""

    dependencies: tuple[str, ...] = ()
    """Requirements as PEP 508 has them."""
    requires_python: str = ""
    isolation: Literal["isolate", "request"] = "isolate"


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of it; other keys are looked at by `read_metadata`."""

    main_module: str = ""
    # Any: of a shape that depends on its type
    bindings: tuple[dict[str, Any], ...] = ()
    compatibility_date: str = ""
    compatibility_flags: tuple[str, ...] = ()
    keep_bindings: tuple[str, ...] = ("secret_text",)
    """Clients that say nothing expect secrets to stay."""
    limits: Limits = Limits()
    annotations: dict[str, str | None] = {}
    observability: dict[str, Any] | None = None
    tags: tuple[str, ...] | None = None
    logpush: bool | None = None
    keep_assets: bool = False
    """Said by who uploads the files of the newest version again, with other secrets."""
    tenantry: Extensions | None = None

    @property
    def extensions(self) -> Extensions:
        return self.tenantry or Extensions()

    @property
    def message(self) -> str:
        return self.annotations.get("workers/message") or ""

    @property
    def tag(self) -> str:
        return self.annotations.get("workers/tag") or ""


class Bindings(msgspec.Struct, frozen=True, kw_only=True):
    """What of an upload's bindings is new, and what comes over from the version before."""

    new: tuple[Binding, ...]
    secrets: dict[str, Plaintext]
    inherited: frozenset[str]


def read_metadata(raw: bytes) -> tuple[Metadata, tuple[str, ...]]:
    """Return what the part says, and messages about what has no effect.

    Raises `ScriptRefused` for what is malformed, and for what there is not, by name.
    """
    if len(raw) > MAX_METADATA_BYTES:
        raise ScriptRefused(f"the metadata has more than {MAX_METADATA_BYTES} bytes")
    try:
        keys = msgspec.json.decode(raw, type=dict[str, Any])
        metadata = msgspec.convert(keys, Metadata)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ScriptRefused(f"the metadata is malformed: {error}") from error
    for key, (problem, remedy) in REFUSED_KEYS.items():
        if keys.get(key):
            raise ScriptRefused(problem, path=f"metadata.{key}", remedy=remedy)
    _check_length("workers/message", metadata.annotations, MAX_MESSAGE_CHARS)
    _check_length("workers/tag", metadata.annotations, MAX_TAG_CHARS)
    ignored = sorted(key for key in WITHOUT_EFFECT if keys.get(key))
    return metadata, tuple(f"{key} has no effect here" for key in ignored)


def _check_length(name: str, annotations: Mapping[str, str | None], limit: int) -> None:
    if len(annotations.get(name) or "") > limit:
        raise ScriptRefused(f"{name} has more than {limit} characters")


def read_limits(limits: Limits) -> WorkerLimits:
    """Return a version's limits; raise `ScriptRefused` for one out of range."""
    given = {
        name: value
        for name in ("cpu_ms", "subrequests")
        if (value := getattr(limits, name)) is not None
    }
    try:
        return msgspec.convert(given, WorkerLimits)
    except msgspec.ValidationError as error:
        raise ScriptRefused(f"limits: {error}") from error


# Any: as they came
def read_bindings(bindings: tuple[dict[str, Any], ...]) -> Bindings:
    """Read bindings; raise `ScriptRefused` for one that is malformed or of a kind that there is not."""
    new: list[Binding] = []
    secrets: dict[str, Plaintext] = {}
    inherited: set[str] = set()
    # before any of their targets is looked for
    if len(bindings) > MAX_BINDINGS:
        raise ScriptRefused(f"there are {len(bindings)} bindings; {MAX_BINDINGS} are allowed")
    for given in bindings:
        name, kind = given.get("name"), given.get("type")
        if not isinstance(name, str) or not isinstance(kind, str):
            raise ScriptRefused("a binding has no name or no type")
        if kind == "inherit":
            inherited.add(name)
            continue
        read = _READERS.get(kind)
        if read is None:
            _refuse(name, kind)
        try:
            new.append(read(name, given))
        except (KeyError, msgspec.ValidationError) as error:
            raise ScriptRefused(f"binding {name!r} of type {kind}: {_problem(error)}") from error
        if kind == "secret_text":
            secrets[name] = Plaintext(given["text"])
    return Bindings(new=tuple(new), secrets=secrets, inherited=frozenset(inherited))


def _refuse(name: str, kind: str) -> NoReturn:
    what, remedy = REFUSED_BINDINGS.get(
        kind, (f"the type {kind[:64]!r}", "Remove it from the configuration")
    )
    raise ScriptRefused(f"binding {name[:64]!r}: {what} is not available here", remedy=remedy)


def _problem(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _ai(name: str, given: Mapping[str, Any]) -> Binding:
    if given.get("staging"):
        raise msgspec.ValidationError("there is no staging here")
    return AiBinding(name=name)


def _text(name: str, given: Mapping[str, Any]) -> Binding:
    return TextBinding(name=name, text=msgspec.convert(given["text"], str))


def _secret(name: str, given: Mapping[str, Any]) -> Binding:
    msgspec.convert(given["text"], str)
    return SecretBinding(name=name)


def _kv(name: str, given: Mapping[str, Any]) -> Binding:
    namespace_id = msgspec.convert(given["namespace_id"], str)
    if not can_be_known(namespace_id):
        raise msgspec.ValidationError("the namespace_id is none")
    return KvBinding(name=name, namespace_id=namespace_id)


def _service(name: str, given: Mapping[str, Any]) -> Binding:
    environment = given.get("environment")
    if environment not in (None, "production"):
        raise msgspec.ValidationError(f"there is no environment {environment!r}")
    return ServiceBinding(
        name=name,
        service=msgspec.convert(given["service"], str),
        entrypoint=msgspec.convert(given.get("entrypoint") or "", str),
    )


_READERS: Mapping[str, Callable[[str, Mapping[str, Any]], Binding]] = {
    "ai": _ai,
    "plain_text": _text,
    "json": lambda name, given: JsonBinding(name=name, json=given["json"]),
    "secret_text": _secret,
    "kv_namespace": _kv,
    "service": _service,
    "version_metadata": lambda name, _: VersionBinding(name=name),
}
