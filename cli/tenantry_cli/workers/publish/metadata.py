"""The part `metadata` of an upload.

| key | what it holds |
|---|---|
| main_module | the name of the part that is imported |
| bindings | objects with `name`, `type`, and what the type needs |
| compatibility_date, compatibility_flags | as configured |
| keep_bindings | types of the version before whose bindings stay: secrets, and with `keep_vars` variables |
| limits, observability | as configured, if they are |
| annotations | `workers/message`, `workers/tag` |
| tenantry | what Cloudflare's has no key for: `dependencies` (PEP 508), `requires_python`, `isolation` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenantry_cli.workers.bundle import Bundle
from tenantry_cli.workers.config import Project

KEPT = ("secret_text", "secret_key")
VARIABLES = ("plain_text", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a command line asks for beyond the configuration."""

    tag: str | None = None
    message: str | None = None
    keep_vars: bool = False
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """They beat the configuration's of the same names."""
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Deployed along."""
    compatibility_date: str | None = None
    compatibility_flags: tuple[str, ...] = ()


# Any: JSON
def metadata(project: Project, bundle: Bundle, wishes: Wishes) -> dict[str, Any]:
    """Describe an upload; it names no secret's value but those that are deployed along."""
    keeps_vars = wishes.keep_vars or project.keep_vars
    described: dict[str, Any] = {
        "main_module": bundle.main_module,
        "bindings": [*bindings(project, wishes), *_secrets(wishes)],
        "compatibility_date": wishes.compatibility_date or project.compatibility_date,
        "compatibility_flags": list(wishes.compatibility_flags or project.compatibility_flags),
        "keep_bindings": [*KEPT, *(VARIABLES if keeps_vars else ())],
        "limits": project.limits,
        "observability": project.observability,
        "annotations": labels(wishes),
        "tenantry": _extensions(project, bundle),
    }
    return {key: value for key, value in described.items() if value not in (None, "", {})}


def bindings(project: Project, wishes: Wishes) -> list[dict[str, Any]]:
    """Return the bindings of an upload without its secrets."""
    given = [
        {"name": name, "type": "plain_text", "text": text}
        for name, text in wishes.variables.items()
    ]
    return [
        *(each for each in project.bindings if each["name"] not in wishes.variables),
        *given,
    ]


def labels(wishes: Wishes) -> dict[str, str]:
    """Return what an upload or a deployment is labeled with."""
    said = {"workers/message": wishes.message, "workers/tag": wishes.tag}
    return {key: label for key, label in said.items() if label is not None}


def _secrets(wishes: Wishes) -> list[dict[str, Any]]:
    return [
        {"name": name, "type": "secret_text", "text": text} for name, text in wishes.secrets.items()
    ]


def _extensions(project: Project, bundle: Bundle) -> dict[str, Any]:
    requirements = bundle.requirements
    extensions: dict[str, Any] = {}
    if requirements.dependencies or requirements.requires_python:
        extensions["dependencies"] = list(requirements.dependencies)
        extensions["requires_python"] = requirements.requires_python
    if project.isolation is not None:
        extensions["isolation"] = project.isolation
    return extensions
