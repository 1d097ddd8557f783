"""The operator's routes: `/metrics` for scrapers, `/operator/overview` for programs, `/console` for people."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple
from urllib.parse import parse_qs

import anyio
import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tenantry_runtime.edge.reply import JSON
from tenantry_runtime.edge.services import Services
from tenantry_runtime.errors import Forbidden, NodeUnavailable, RouteNotFound, Unauthenticated
from tenantry_runtime.pool.interface import TokenSource
from tenantry_runtime.pool.page_map import PageMaps
from tenantry_runtime.telemetry.metrics import Metering, RecentRequests

from .access import COOKIE, OperatorAccess
from .console import NodeMaps, login_page, page, pages_page, script
from .overview import overview

MAX_LOGIN_BYTES = 4096
PRIVATE = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; img-src data:; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class Operating(NamedTuple):
    """What the routes work with."""

    services: Services
    access: OperatorAccess
    metering: Metering
    recent: RecentRequests


def operator_routes(operating: Operating) -> list[Route]:
    """Return the routes; the console's part that reloads is the page itself."""
    return [
        Route("/metrics", partial(_metrics, operating=operating)),
        Route("/operator/overview", partial(_overview, operating=operating)),
        Route("/console", partial(_console, operating=operating)),
        Route("/console/pages", partial(_pages, operating=operating)),
        Route("/console/console.js", _script),
        Route("/console/login", partial(_log_in, operating=operating), methods=["POST"]),
        Route("/console/logout", _log_out, methods=["POST"]),
    ]


async def _metrics(request: Request, operating: Operating) -> Response:
    await operating.access.require(request)
    if not operating.metering.is_scraped:
        raise RouteNotFound
    text = await anyio.to_thread.run_sync(operating.metering.exposition)
    return Response(text, media_type=operating.metering.content_type)


async def _overview(request: Request, operating: Operating) -> Response:
    await operating.access.require(request)
    found = await overview(operating.services, operating.recent)
    return Response(msgspec.json.encode(found), headers={**JSON, "cache-control": "no-store"})


async def _console(request: Request, operating: Operating) -> Response:
    try:
        await operating.access.require(request)
    except (Unauthenticated, Forbidden):
        return _html(login_page(), 401)
    return _html(page(await overview(operating.services, operating.recent)))


async def _pages(request: Request, operating: Operating) -> Response:
    try:
        await operating.access.require(request)
    except (Unauthenticated, Forbidden):
        return _html(login_page(), 401)
    nodes = operating.services.nodes.all
    found: dict[str, PageMaps | None] = {}

    async def ask(node: TokenSource) -> None:
        try:
            found[node.address] = await node.pages()
        except NodeUnavailable:
            found[node.address] = None

    async with anyio.create_task_group() as tasks:
        for node in nodes:
            tasks.start_soon(ask, node)
    return _html(pages_page([NodeMaps(node.address, found[node.address]) for node in nodes]))


async def _script(_request: Request) -> Response:
    return Response(script(), media_type="text/javascript")


async def _log_in(request: Request, operating: Operating) -> Response:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_LOGIN_BYTES:
            return _html(login_page("That is no token."), 413)
    token = parse_qs(body.decode("latin-1")).get("token", [""])[0].strip()
    try:
        await operating.access.check(token)
    except (Unauthenticated, Forbidden):
        return _html(login_page("That is no admin token of the operator's account."), 401)
    response = RedirectResponse("/console", 303)
    response.set_cookie(
        COOKIE,
        token,
        path="/console",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


async def _log_out(_request: Request) -> Response:
    response = RedirectResponse("/console", 303)
    response.delete_cookie(COOKIE, path="/console")
    return response


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, headers=PRIVATE, media_type="text/html")
