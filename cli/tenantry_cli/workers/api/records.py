"""What the control plane tells, and is told, of versions, deployments, secrets and keys."""

from __future__ import annotations

from typing import Any

import msgspec


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """When, by whom, and with what."""

    created_on: str = ""
    author_email: str = ""
    author_id: str = ""
    source: str = ""

    @property
    def author(self) -> str:
        """Who it was, as far as it is known."""
        return self.author_email or self.author_id


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """What a version runs with."""

    compatibility_date: str = ""
    compatibility_flags: list[str] = []
    limits: dict[str, Any] | None = None


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """What a version's code is."""

    handlers: list[str] | None = None


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What a version is made of."""

    script: Script = Script()
    script_runtime: Runtime = Runtime()
    # Any: JSON, as it was uploaded
    bindings: list[dict[str, Any]] = []


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version; listings leave its resources out."""

    id: str
    number: int = 0
    metadata: Made = Made()
    annotations: dict[str, Any] | None = None
    resources: Resources = Resources()

    @property
    def message(self) -> str:
        """What changed, in its maker's words."""
        return label(self.annotations, "message")

    @property
    def tag(self) -> str:
        """What its maker called it."""
        return label(self.annotations, "tag")


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """The newest first."""

    items: list[Version] = []


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A version's part of the traffic."""

    version_id: str
    percentage: float


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """Which versions got which part of the traffic."""

    id: str = ""
    created_on: str = ""
    author_email: str = ""
    source: str = ""
    annotations: dict[str, Any] | None = None
    versions: list[Share] = []

    @property
    def message(self) -> str:
        """Why, in its maker's words."""
        return label(self.annotations, "message")

    @property
    def only_version(self) -> str | None:
        """The version that got all; None where several share."""
        return self.versions[0].version_id if len(self.versions) == 1 else None


class Deployments(msgspec.Struct, frozen=True, kw_only=True):
    """The newest, which holds, first."""

    deployments: list[Deployment] = []


def label(annotations: dict[str, Any] | None, name: str) -> str:
    """Return one of `workers/…`, "" for none."""
    return str((annotations or {}).get(f"workers/{name}") or "")


class SecretName(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, as listings have it: without its value."""

    name: str
    type: str = "secret_text"


class Pair(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A key and its value, as files have it."""

    key: str
    value: str
    expiration: int | None = None
    """Unix seconds."""
    expiration_ttl: int | None = None
    """Seconds."""
    # Any: JSON of the user's
    metadata: Any = None
    base64: bool = False
    """Whether `value` is base64 of the bytes."""


class KeyName(msgspec.Struct, frozen=True, kw_only=True):
    """A key, as `kv key list` prints it."""

    name: str


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """Values by keys; null: there is none."""

    values: dict[str, Any] = {}
