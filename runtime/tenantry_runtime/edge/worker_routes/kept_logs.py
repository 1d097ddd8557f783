"""`GET …/workers/scripts/{script}/logs`: what this edge has kept of a worker. Not Cloudflare's.

| parameter | what |
|---|---|
| limit | at most so many of the newest, 1 to 1000; 100 |
| since | Unix time in milliseconds |
| outcome | words of `workers.outcome`, with commas between |
| query | text that a record holds |

The result is `{records, dropped, is_whole}`: records as a tail has them, the oldest first.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from tenantry_runtime.edge.control.call import Call, endpoint, success
from tenantry_runtime.edge.control.services import ControlServices
from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.workers.logs import KeptLogs

MAX_RECORDS = 1000
LATEST_MS = 1 << 53


def logs_route(base: str, services: ControlServices, logs: KeptLogs) -> Route:
    """Return the route; `base` is the path of an account's workers."""

    async def show(call: Call) -> Response:
        # a name that is none is no file's either
        await services.workers.scripts.get(call.account, call.worker)
        asked = call.request.query_params
        outcomes = asked.get("outcome")
        page = await logs.read(
            call.account,
            call.worker,
            limit=call.number("limit", default=100, most=MAX_RECORDS),
            since_ms=_moment(asked.get("since", "0")),
            outcomes=frozenset(outcomes.split(",")) if outcomes else None,
            search=asked.get("query") or None,
        )
        return success(page)

    return Route(f"{base}/scripts/{{script}}/logs", endpoint(services, show), methods=["GET"])


def _moment(text: str) -> int:
    """Read a Unix time; raise `InvalidInput`."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= 16
    if not is_number or int(text) > LATEST_MS:
        raise InvalidInput("?since", "must be a Unix time in milliseconds")
    return int(text)
