"""What calls a worker: its own URL, routes, cron triggers; and zones, which routes are in.

A zone is a domain of the account, known by its name. Custom domains are routes to a whole host.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from tenantry_runtime.errors import InvalidInput, NoSuchRecord
from tenantry_runtime.tenancy.workers import Route, Schedule
from tenantry_runtime.tenancy.workers.patterns import parse

from . import output
from .call import Call, paged, success, timestamp


class SubdomainInput(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool | None = None
    previews_enabled: bool | None = None


class AccountSubdomainInput(msgspec.Struct, frozen=True, kw_only=True):
    subdomain: str


class ScheduleInput(msgspec.Struct, frozen=True, kw_only=True):
    cron: str


class RouteInput(msgspec.Struct, frozen=True, kw_only=True):
    pattern: str


class ZoneRouteInput(msgspec.Struct, frozen=True, kw_only=True):
    pattern: str
    script: str


class DomainInput(msgspec.Struct, frozen=True, kw_only=True):
    hostname: str


class DomainsInput(msgspec.Struct, frozen=True, kw_only=True):
    origins: tuple[DomainInput, ...]


async def show_account_subdomain(call: Call) -> Response:
    """Show below which name the account's workers are: its own."""
    return success({"subdomain": call.account})


async def set_account_subdomain(call: Call) -> Response:
    """Refuse any other name than the account's own."""
    asked = await call.json(AccountSubdomainInput)
    if asked.subdomain != call.account:
        raise InvalidInput(
            "subdomain", f"is always the account's own id here, {call.account!r}: use that"
        )
    return success({"subdomain": call.account})


async def show_subdomain(call: Call) -> Response:
    """Show whether a worker answers at its own name."""
    return success(
        output.subdomain(await call.services.workers.scripts.get(call.account, call.worker))
    )


async def set_subdomain(call: Call) -> Response:
    """Say whether a worker answers at its own name."""
    asked = await call.json(SubdomainInput)
    worker = await call.services.workers.scripts.set_url(
        call.account,
        call.worker,
        has_url=asked.enabled,
        has_preview_urls=asked.previews_enabled,
    )
    return success(output.subdomain(worker))


async def list_schedules(call: Call) -> Response:
    """List a worker's cron triggers."""
    found = await call.services.workers.triggers.schedules_of(call.account, call.worker)
    return success({"schedules": [_schedule(each) for each in found]})


async def put_schedules(call: Call) -> Response:
    """Replace a worker's cron triggers."""
    asked = await call.json(tuple[ScheduleInput, ...])
    made = await call.services.workers.triggers.set_schedules(
        call.account, call.worker, [each.cron for each in asked]
    )
    return success({"schedules": [_schedule(each) for each in made]})


async def list_routes(call: Call) -> Response:
    """List a worker's routes."""
    await call.services.workers.scripts.get(call.account, call.worker)
    found = await call.services.workers.triggers.routes(call.account, call.worker)
    return success([_route(each) for each in found])


async def put_routes(call: Call) -> Response:
    """Replace a worker's routes."""
    asked = await call.json(tuple[RouteInput, ...])
    made = await call.services.workers.triggers.set_routes(
        call.account, call.worker, [each.pattern for each in asked]
    )
    return success([_route(each) for each in made])


async def check_domains(call: Call) -> Response:
    """Say what custom domains would change: routes that are refused are, when they are put."""
    asked = await call.json(tuple[DomainInput, ...])
    added = [{"hostname": each.hostname} for each in asked]
    return success({"added": added, "removed": [], "updated": [], "conflicting": []})


async def put_domains(call: Call) -> Response:
    """Let whole hosts lead to a worker."""
    asked = await call.json(DomainsInput)
    await call.services.workers.triggers.set_routes(
        call.account,
        call.worker,
        [f"{each.hostname}/*" for each in asked.origins],
        is_whole=False,
    )
    return success([{"hostname": each.hostname, "service": call.worker} for each in asked.origins])


async def list_zones(call: Call) -> Response:
    """List the account's domains, all or the one of a name."""
    name = call.request.query_params.get("name")
    domains = call.services.workers.triggers.domains_of(call.account)
    return paged(call, [_zone(call, each) for each in domains if name in (None, each)])


async def show_zone(call: Call) -> Response:
    """Show one of the account's domains."""
    return success(_zone(call, _zone_of(call)))


async def list_zone_routes(call: Call) -> Response:
    """List the account's routes in a zone."""
    domain = _zone_of(call)
    found = await call.services.workers.triggers.routes(call.account)
    return paged(call, [_route(each) for each in found if _is_in(each, domain)])


async def post_zone_route(call: Call) -> Response:
    """Add a route."""
    _zone_of(call)
    asked = await call.json(ZoneRouteInput)
    made = await call.services.workers.triggers.set_routes(
        call.account, asked.script, [asked.pattern], is_whole=False
    )
    pattern = parse(asked.pattern).text
    return success(next(_route(each) for each in made if each.pattern == pattern))


async def delete_zone_route(call: Call) -> Response:
    """Delete a route."""
    route_id = call.request.path_params["route"]
    if not await call.services.workers.triggers.delete_route(call.account, route_id):
        raise NoSuchRecord("route", route_id)
    return success({"id": route_id})


def _zone_of(call: Call) -> str:
    zone = str(call.request.path_params["zone"])
    if zone not in call.services.workers.triggers.domains_of(call.account):
        raise NoSuchRecord("zone", zone)
    return zone


def _is_in(route: Route, domain: str) -> bool:
    host = route.pattern.split("/")[0].lstrip("*").lstrip(".")
    return host == domain or host.endswith(f".{domain}")


# Any: JSON
def _zone(call: Call, domain: str) -> dict[str, Any]:
    account = {"id": call.account, "name": call.account}
    return {"id": domain, "name": domain, "status": "active", "account": account}


def _route(route: Route) -> dict[str, Any]:
    return {"id": route.id, "pattern": route.pattern, "script": route.worker}


def _schedule(schedule: Schedule) -> dict[str, Any]:
    moment = timestamp(schedule.created_ms)
    return {"cron": schedule.cron, "created_on": moment, "modified_on": moment}
