"""Cloudflare's paths and answers, as wrangler's traffic has them."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from .fake_control_state import (
    ACCOUNT,
    Call,
    ControlPlaneFake,
    Namespace,
    Paged,
    Problem,
    Raw,
    Worker,
)


def answer(fake: ControlPlaneFake, call: Call) -> Any:
    """Do what a call asks for; raises Problem."""
    if problem := fake.refusals.get((call.method, call.path)):
        raise problem
    for method, pattern, action in ROUTES:
        match = re.fullmatch(pattern, call.path)
        if method == call.method and match:
            return action(fake, call, *map(unquote, match.groups()))
    raise Problem(404, 7003, f"No route for {call.method} {call.path}")


def _service(fake: ControlPlaneFake, _: Call, name: str) -> Any:
    if name not in fake.workers:
        raise Problem(404, 10090, "workers.api.error.service_not_found")
    return {"id": name, "default_environment": {"script": {"id": name, "tag": "t"}}}


def _delete_service(fake: ControlPlaneFake, _: Call, name: str) -> Any:
    fake.worker(name)
    del fake.workers[name]


def _new_version(worker: Worker, call: Call) -> dict[str, Any]:
    metadata = call.metadata
    version = {
        "id": str(uuid.uuid4()),
        "number": len(worker.versions) + 1,
        "startup_time_ms": 12,
        "metadata": {
            "created_on": f"2026-01-0{len(worker.versions) + 1}T12:00:00Z",
            "source": "workerctl",
            "author_email": "ada@example.com",
        },
        "annotations": metadata.get("annotations", {}),
        "resources": {
            "script": {"etag": "e", "handlers": ["fetch"]},
            "script_runtime": {"compatibility_date": metadata.get("compatibility_date", "")},
            "bindings": metadata["bindings"],
        },
    }
    worker.versions.insert(0, version)
    for binding in metadata["bindings"]:
        if binding["type"] == "secret_text":
            worker.secrets[binding["name"]] = binding["text"]
    return version


def _deployed(worker: Worker, versions: list[dict[str, Any]], annotations: Any) -> dict[str, Any]:
    deployment = {
        "id": str(uuid.uuid4()),
        "source": "workerctl",
        "strategy": "percentage",
        "author_email": "ada@example.com",
        "created_on": f"2026-02-0{len(worker.deployments) + 1}T12:00:00Z",
        "annotations": annotations,
        "versions": versions,
    }
    worker.deployments.insert(0, deployment)
    return deployment


def _put_script(fake: ControlPlaneFake, call: Call, name: str) -> Any:
    assert call.query == {"excludeScript": "true", "bindings_inherit": "strict"}
    worker = fake.workers.setdefault(name, Worker())
    version = _new_version(worker, call)
    _deployed(worker, [{"version_id": version["id"], "percentage": 100}], {})
    return {
        "id": name,
        "etag": "e",
        "startup_time_ms": 12,
        "deployment_id": version["id"].replace("-", ""),
    }


def _post_version(fake: ControlPlaneFake, call: Call, name: str) -> Any:
    return _new_version(fake.worker(name), call)


def _post_deployment(fake: ControlPlaneFake, call: Call, name: str) -> Any:
    worker = fake.worker(name)
    known = {version["id"] for version in worker.versions}
    for share in call.json["versions"]:
        if share["version_id"] not in known:
            raise Problem(404, 10008, f"version {share['version_id']} not found")
    return _deployed(worker, call.json["versions"], call.json.get("annotations", {}))


def _version(fake: ControlPlaneFake, _: Call, name: str, id: str) -> Any:
    for version in fake.worker(name).versions:
        if version["id"] == id:
            return version
    raise Problem(404, 10008, f"version {id} not found")


def _settings(fake: ControlPlaneFake, _: Call, name: str) -> Any:
    return {"bindings": fake.worker(name).versions[0]["resources"]["bindings"]}


def _set_subdomain(fake: ControlPlaneFake, call: Call, name: str) -> Any:
    fake.worker(name).has_url = call.json["enabled"]
    return call.json


def _set_schedules(fake: ControlPlaneFake, call: Call, name: str) -> Any:
    fake.worker(name).crons = [each["cron"] for each in call.json]
    return {"schedules": call.json}


def _set_routes(fake: ControlPlaneFake, call: Call, name: str) -> Any:
    fake.worker(name).routes = call.json
    return call.json


def _put_secret(fake: ControlPlaneFake, call: Call, name: str) -> Any:
    fake.worker(name).secrets[call.json["name"]] = call.json["text"]
    return {"name": call.json["name"], "type": "secret_text"}


def _delete_secret(fake: ControlPlaneFake, _: Call, name: str, key: str) -> Any:
    if fake.worker(name).secrets.pop(key, None) is None:
        raise Problem(404, 10056, f"the worker {name} has no secret {key}")


def _bulk_secrets(fake: ControlPlaneFake, call: Call, name: str) -> Any:
    secrets = fake.worker(name).secrets
    for key, secret in call.json["secrets"].items():
        if secret is None:
            secrets.pop(key, None)
        else:
            secrets[key] = secret["text"]


def _secrets(fake: ControlPlaneFake, _: Call, name: str) -> Any:
    return [{"name": key, "type": "secret_text"} for key in sorted(fake.worker(name).secrets)]


def _open_tail(fake: ControlPlaneFake, call: Call, name: str) -> Any:
    fake.worker(name)
    fake.tail_filters.append(call.json["filters"])
    return {"id": "t1", "url": f"ws://127.0.0.1:{fake.tail_port}/t1", "expires_at": "2027"}


def _close_tail(fake: ControlPlaneFake, _: Call, name: str, id: str) -> Any:
    fake.closed_tails.append(id)


def _logs(fake: ControlPlaneFake, call: Call, name: str) -> Any:
    records = fake.worker(name).kept_logs
    return {"records": records[-int(call.query["limit"]) :], "dropped": 0, "is_whole": True}


def _namespaces(fake: ControlPlaneFake, call: Call) -> Any:
    page, size = int(call.query.get("page", 1)), int(call.query.get("per_page", 20))
    listed = [{"id": id, "title": each.title} for id, each in fake.namespaces.items()]
    return listed[(page - 1) * size : page * size]


def _new_namespace(fake: ControlPlaneFake, call: Call) -> Any:
    id = f"{len(fake.namespaces):032x}"
    fake.namespaces[id] = Namespace(call.json["title"])
    return {"id": id, "title": call.json["title"]}


def _rename_namespace(fake: ControlPlaneFake, call: Call, id: str) -> Any:
    fake.namespace(id).title = call.json["title"]
    return {"id": id, "title": call.json["title"]}


def _delete_namespace(fake: ControlPlaneFake, _: Call, id: str) -> Any:
    fake.namespace(id)
    del fake.namespaces[id]


def _keys(fake: ControlPlaneFake, call: Call, id: str) -> Any:
    # two at once, so that a client must ask again
    names = sorted(
        n for n in fake.namespace(id).values if n.startswith(call.query.get("prefix", ""))
    )
    start = int(call.query.get("cursor") or 0)
    listed = [{"name": n, **fake.namespace(id).details[n]} for n in names[start : start + 2]]
    cursor = str(start + 2) if start + 2 < len(names) else ""
    return Paged(listed, {"count": len(listed), "cursor": cursor})


def _put_value(fake: ControlPlaneFake, call: Call, id: str, key: str) -> Any:
    details: dict[str, Any] = {name: int(value) for name, value in call.query.items()}
    content = call.body
    if call.parts:
        content = call.parts["value"].content
        details["metadata"] = json.loads(call.parts["metadata"].content)
    fake.namespace(id).values[key] = content
    fake.namespace(id).details[key] = details


def _value(fake: ControlPlaneFake, _: Call, id: str, key: str) -> Any:
    if key not in fake.namespace(id).values:
        raise Problem(404, 10009, "key not found")
    return Raw(fake.namespace(id).values[key])


def _delete_value(fake: ControlPlaneFake, _: Call, id: str, key: str) -> Any:
    fake.namespace(id).values.pop(key, None)


def _bulk_put(fake: ControlPlaneFake, call: Call, id: str) -> Any:
    for pair in call.json:
        fake.namespace(id).values[pair["key"]] = pair["value"].encode()
        fake.namespace(id).details[pair["key"]] = {}


def _bulk_get(fake: ControlPlaneFake, call: Call, id: str) -> Any:
    values = fake.namespace(id).values
    return {
        "values": {
            key: values[key].decode() if key in values else None for key in call.json["keys"]
        }
    }


def _bulk_delete(fake: ControlPlaneFake, call: Call, id: str) -> Any:
    for key in call.json:
        fake.namespace(id).values.pop(key, None)


def _models(fake: ControlPlaneFake, _: Call) -> Any:
    info = {"page": 1, "per_page": 100, "count": len(fake.models), "total_count": len(fake.models)}
    return Paged(fake.models, info)


def _schema(_: ControlPlaneFake, call: Call) -> Any:
    return {"input": {"title": call.query["model"]}, "output": {}}


_SCRIPT = "/workers/scripts/([^/]+)"
_KV = "/storage/kv/namespaces/([^/]+)"
ROUTES: list[tuple[str, str, Callable[..., Any]]] = [
    ("GET", "/accounts", lambda *_: [{"id": ACCOUNT, "name": "Acme Inc."}]),
    ("GET", "/ai/models/search", _models),
    ("GET", "/ai/models/schema", _schema),
    ("GET", "/workers/services/([^/]+)", _service),
    ("DELETE", "/workers/services/([^/]+)", _delete_service),
    ("GET", "/workers/subdomain", lambda *_: {"subdomain": ACCOUNT}),
    ("PUT", _SCRIPT, _put_script),
    ("POST", f"{_SCRIPT}/versions", _post_version),
    ("GET", f"{_SCRIPT}/versions", lambda fake, _, name: {"items": fake.worker(name).versions}),
    ("GET", f"{_SCRIPT}/versions/([^/]+)", _version),
    ("POST", f"{_SCRIPT}/deployments", _post_deployment),
    (
        "GET",
        f"{_SCRIPT}/deployments",
        lambda fake, _, name: {"deployments": fake.worker(name).deployments},
    ),
    ("GET", f"{_SCRIPT}/settings", _settings),
    ("PATCH", f"{_SCRIPT}/script-settings", lambda _, call, name: call.json),
    ("POST", f"{_SCRIPT}/subdomain", _set_subdomain),
    ("PUT", f"{_SCRIPT}/schedules", _set_schedules),
    ("PUT", f"{_SCRIPT}/routes", _set_routes),
    ("GET", f"{_SCRIPT}/secrets", _secrets),
    ("PUT", f"{_SCRIPT}/secrets", _put_secret),
    ("PATCH", f"{_SCRIPT}/secrets-bulk", _bulk_secrets),
    ("DELETE", f"{_SCRIPT}/secrets/([^/]+)", _delete_secret),
    ("POST", f"{_SCRIPT}/tails", _open_tail),
    ("DELETE", f"{_SCRIPT}/tails/([^/]+)", _close_tail),
    ("GET", f"{_SCRIPT}/logs", _logs),
    ("GET", "/storage/kv/namespaces", _namespaces),
    ("POST", "/storage/kv/namespaces", _new_namespace),
    ("PUT", _KV, _rename_namespace),
    ("DELETE", _KV, _delete_namespace),
    ("GET", f"{_KV}/keys", _keys),
    ("PUT", f"{_KV}/values/([^/]+)", _put_value),
    ("GET", f"{_KV}/values/([^/]+)", _value),
    ("DELETE", f"{_KV}/values/([^/]+)", _delete_value),
    ("PUT", f"{_KV}/bulk", _bulk_put),
    ("POST", f"{_KV}/bulk/get", _bulk_get),
    ("POST", f"{_KV}/bulk/delete", _bulk_delete),
]
