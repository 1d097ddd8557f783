"""Which path is what, as Cloudflare's clients call them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.routing import Route

from tenantry_runtime.tenancy import Scope

from . import kv, products, scripts, secrets, tails, triggers, versions, whoami
from .call import Handler, endpoint
from .services import ControlServices

ROOT = "/client/v4"
ACCOUNT = f"{ROOT}/accounts/{{account}}"
WORKERS = f"{ACCOUNT}/workers"
SCRIPT = f"{WORKERS}/scripts/{{script}}"
NAMESPACES = f"{ACCOUNT}/storage/kv/namespaces"
NAMESPACE = f"{NAMESPACES}/{{namespace}}"
ZONES = f"{ROOT}/zones"

Handlers = Mapping[str, Mapping[str, Handler]]
"""By path, then by method."""

ABOUT_TOKEN: Handlers = {
    f"{ROOT}/user": {"GET": whoami.show_user},
    f"{ROOT}/user/tokens/verify": {"GET": whoami.verify_token},
    f"{ROOT}/memberships": {"GET": whoami.list_memberships},
    f"{ROOT}/accounts": {"GET": whoami.list_accounts},
    ACCOUNT: {"GET": whoami.show_account},
    f"{ACCOUNT}/tokens/verify": {"GET": whoami.verify_token},
}
"""For any valid token."""

SCRIPTS: Handlers = {
    f"{WORKERS}/scripts": {"GET": scripts.list_scripts},
    SCRIPT: {
        "GET": scripts.show_content,
        "PUT": scripts.put_script,
        "DELETE": scripts.delete_script,
    },
    f"{SCRIPT}/content/v2": {"GET": scripts.show_content},
    f"{SCRIPT}/settings": {"GET": scripts.show_settings, "PATCH": scripts.change_bindings},
    f"{SCRIPT}/script-settings": {
        "GET": scripts.show_script_settings,
        "PATCH": scripts.change_script_settings,
    },
    f"{SCRIPT}/references": {"GET": scripts.show_references},
    f"{WORKERS}/tails/by-consumer/{{script}}": {"GET": scripts.list_nothing},
    f"{WORKERS}/durable_objects/namespaces": {"GET": scripts.list_nothing},
    f"{WORKERS}/services/{{script}}": {
        "GET": scripts.show_service,
        "DELETE": scripts.delete_service,
    },
    f"{WORKERS}/workers/{{script}}": {"GET": scripts.show_worker},
    f"{WORKERS}/workers/{{script}}/versions/{{version}}": {"GET": versions.show_version},
}

VERSIONS: Handlers = {
    f"{SCRIPT}/versions": {"GET": versions.list_versions, "POST": versions.post_version},
    f"{SCRIPT}/versions/{{version}}": {"GET": versions.show_version},
    f"{SCRIPT}/deployments": {
        "GET": versions.list_deployments,
        "POST": versions.post_deployment,
    },
    f"{SCRIPT}/deployments/{{deployment}}": {"GET": versions.show_deployment},
    f"{SCRIPT}/secrets": {"GET": secrets.list_secrets, "PUT": secrets.put_secret},
    f"{SCRIPT}/secrets-bulk": {"PATCH": secrets.change_secrets},
    f"{SCRIPT}/secrets/{{secret}}": {
        "GET": secrets.show_secret,
        "DELETE": secrets.delete_secret,
    },
    f"{SCRIPT}/tails": {"POST": tails.post_tail},
    f"{SCRIPT}/tails/{{tail}}": {"DELETE": tails.delete_tail},
}

TRIGGERS: Handlers = {
    f"{WORKERS}/subdomain": {
        "GET": triggers.show_account_subdomain,
        "PUT": triggers.set_account_subdomain,
    },
    f"{SCRIPT}/subdomain": {"GET": triggers.show_subdomain, "POST": triggers.set_subdomain},
    f"{SCRIPT}/schedules": {"GET": triggers.list_schedules, "PUT": triggers.put_schedules},
    f"{SCRIPT}/routes": {"GET": triggers.list_routes, "PUT": triggers.put_routes},
    f"{SCRIPT}/domains/changeset": {"POST": triggers.check_domains},
    f"{SCRIPT}/domains/records": {"PUT": triggers.put_domains},
    ZONES: {"GET": triggers.list_zones},
    f"{ZONES}/{{zone}}": {"GET": triggers.show_zone},
    f"{ZONES}/{{zone}}/workers/routes": {
        "GET": triggers.list_zone_routes,
        "POST": triggers.post_zone_route,
    },
    f"{ZONES}/{{zone}}/workers/routes/{{route}}": {"DELETE": triggers.delete_zone_route},
}

KV: Handlers = {
    NAMESPACES: {"GET": kv.list_namespaces, "POST": kv.post_namespace},
    NAMESPACE: {
        "GET": kv.show_namespace,
        "PUT": kv.put_namespace,
        "DELETE": kv.delete_namespace,
    },
    f"{NAMESPACE}/keys": {"GET": kv.list_keys},
    f"{NAMESPACE}/bulk": {"PUT": kv.put_bulk, "DELETE": kv.delete_bulk},
    f"{NAMESPACE}/bulk/delete": {"POST": kv.delete_bulk},
    f"{NAMESPACE}/bulk/get": {"POST": kv.get_bulk},
    # a key may have slashes, written as %2F or plainly
    f"{NAMESPACE}/metadata/{{key:path}}": {"GET": kv.get_metadata},
    f"{NAMESPACE}/values/{{key:path}}": {
        "GET": kv.get_value,
        "PUT": kv.put_value,
        "DELETE": kv.delete_value,
    },
}


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def control_routes(services: ControlServices) -> list[Route]:
    """Return the routes of the control plane."""
    routes = _routes(services, ABOUT_TOKEN, (Scope.RUN, Scope.DEPLOY))
    for handlers in (SCRIPTS, VERSIONS, TRIGGERS):
        routes += _routes(services, handlers, (Scope.DEPLOY,), change_workers=True)
    routes += _routes(services, KV, (Scope.DEPLOY,))
    refuse = endpoint(services, products.refuse)
    return [
        *routes,
        *(
            # the product's own path, and all below it
            Route(f"{ACCOUNT}/{product}{{rest:path}}", refuse, methods=list(METHODS))
            for product in products.UNAVAILABLE
        ),
    ]


def _routes(
    services: ControlServices,
    handlers: Handlers,
    scopes: Sequence[Scope],
    *,
    change_workers: bool = False,
) -> list[Route]:
    return [
        Route(
            path,
            endpoint(services, handler, scopes, changes_workers=change_workers and method != "GET"),
            methods=[method],
        )
        for path, by_method in handlers.items()
        for method, handler in by_method.items()
    ]
