"""Workers, versions and deployments as the API shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry_runtime.tenancy.workers import Deployment, Notes, Settings, StoredVersion, Worker
from tenantry_runtime.workers.spec import Binding, ServiceBinding, WorkerVersion

from .call import timestamp

USAGE_MODEL = "standard"
ENVIRONMENT = "production"

# Any: JSON, all over this module


def script(worker: Worker, newest: StoredVersion) -> dict[str, Any]:
    """Show a worker with its newest version."""
    version = newest.version
    return {
        "id": worker.name,
        "tag": worker.id,
        "tags": list(worker.settings.tags),
        "etag": etag(version),
        "handlers": ["fetch"],
        "created_on": timestamp(worker.created_ms),
        "modified_on": timestamp(worker.modified_ms),
        "usage_model": USAGE_MODEL,
        "compatibility_date": version.compatibility_date,
        "compatibility_flags": list(version.compatibility_flags),
        "last_deployed_from": source(newest.notes),
        "has_assets": False,
        "has_modules": True,
        "logpush": worker.settings.logpush,
        "observability": observability(worker.settings),
    }


def version(stored: StoredVersion) -> dict[str, Any]:
    """Show a version."""
    version = stored.version
    return {
        "id": version.version_id,
        "number": version.number,
        "startup_time_ms": startup_ms(stored.startup_ms),
        "metadata": {
            "created_on": timestamp(version.created_ms),
            "modified_on": timestamp(version.created_ms),
            "source": source(stored.notes),
            "author_id": stored.notes.author,
            "author_email": stored.notes.author,
            "has_preview": False,
        },
        "annotations": _annotations(version.message, version.tag, stored.notes),
        "resources": {
            "bindings": [binding(each) for each in version.bindings],
            "script": {
                "etag": etag(version),
                "handlers": ["fetch"],
                "last_deployed_from": source(stored.notes),
            },
            "script_runtime": {
                "usage_model": USAGE_MODEL,
                "compatibility_date": version.compatibility_date,
                "compatibility_flags": list(version.compatibility_flags),
                "limits": limits(version),
            },
        },
    }


def deployment(made: Deployment) -> dict[str, Any]:
    """Show a deployment."""
    return {
        "id": made.id,
        "source": source(made.notes),
        "strategy": "percentage",
        "author_email": made.notes.author,
        "created_on": timestamp(made.created_ms),
        "annotations": _annotations(made.notes.message, "", made.notes),
        "versions": [
            {"version_id": share.version_id, "percentage": share.percentage}
            for share in made.shares
        ],
    }


def settings(worker: Worker, newest: StoredVersion) -> dict[str, Any]:
    """Show what holds for a worker and its newest version."""
    version = newest.version
    return {
        **script_settings(worker),
        "bindings": [binding(each) for each in version.bindings],
        "compatibility_date": version.compatibility_date,
        "compatibility_flags": list(version.compatibility_flags),
        "usage_model": USAGE_MODEL,
        "limits": limits(version),
        "placement": {},
    }


def script_settings(worker: Worker) -> dict[str, Any]:
    """Show what holds for a worker whatever its version is."""
    return {
        "logpush": worker.settings.logpush,
        "observability": observability(worker.settings),
        "tags": list(worker.settings.tags),
        "tail_consumers": [],
    }


def subdomain(worker: Worker) -> dict[str, Any]:
    return {"enabled": worker.has_url, "previews_enabled": worker.has_preview_urls}


def binding(each: Binding) -> dict[str, Any]:
    """Show a binding; of a secret, that there is one."""
    shown: dict[str, Any] = msgspec.to_builtins(each)
    if isinstance(each, ServiceBinding):
        shown["environment"] = ENVIRONMENT
    return shown


def limits(version: WorkerVersion) -> dict[str, Any]:
    return {"cpu_ms": version.limits.cpu_ms, "subrequests": version.limits.subrequests}


def observability(settings: Settings) -> dict[str, Any]:
    return settings.observability or {"enabled": False}


def source(notes: Notes) -> str:
    # clients warn before they overwrite what came by another way than a project's folder
    return "wrangler" if notes.source in ("wrangler", "workerctl") else "api"


def startup_ms(cpu_ms: float) -> int:
    """Round up, as clients show only a time that is not 0."""
    return max(1, round(cpu_ms))


def etag(version: WorkerVersion) -> str:
    return version.version_id.replace("-", "")


def _annotations(message: str, tag: str, notes: Notes) -> dict[str, str]:
    given = {
        "workers/message": message,
        "workers/tag": tag,
        "workers/triggered_by": notes.triggered_by,
    }
    return {name: text for name, text in given.items() if text}
