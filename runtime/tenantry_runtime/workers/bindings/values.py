"""What of `env` is a value: variables, secrets, and what the version says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.tenancy.secrets import Plaintext
from tenantry_runtime.workers.spec import (
    JsonBinding,
    SecretBinding,
    TextBinding,
    VersionBinding,
    WorkerVersion,
)


class SecretValues(Protocol):
    """Opens secrets."""

    async def values(self, version: WorkerVersion) -> Mapping[str, Plaintext]:
        """Return the secrets of a version, by the names of their bindings."""
        ...


async def values_of(version: WorkerVersion, secrets: SecretValues) -> dict[str, object]:
    """Return the values of a version's bindings, by their names.

    Raises `ConfigurationError` for a secret that is not there, or does not open.
    """
    has_secrets = any(isinstance(binding, SecretBinding) for binding in version.bindings)
    opened = await secrets.values(version) if has_secrets else {}
    values: dict[str, object] = {}
    for binding in version.bindings:
        match binding:
            case TextBinding(name=name, text=text):
                values[name] = text
            case JsonBinding(name=name, json=json):
                values[name] = json
            case SecretBinding(name=name):
                if name not in opened:
                    raise ConfigurationError(
                        f"the secret {name} of worker {version.worker!r} is not in the store"
                    )
                values[name] = opened[name].value
            case VersionBinding(name=name):
                values[name] = _metadata(version)
            case _:
                pass
    return values


def _metadata(version: WorkerVersion) -> dict[str, str]:
    created = datetime.fromtimestamp(version.created_ms / 1000, UTC)
    return {
        "id": version.version_id,
        "tag": version.tag,
        "timestamp": created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
