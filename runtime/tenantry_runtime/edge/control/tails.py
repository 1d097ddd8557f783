"""Tails: made and ended here, listened to elsewhere (`services.Tails`)."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from tenantry_runtime.errors import NoSuchRecord, ScriptRefused

from .call import Call, decoded, success, timestamp
from .services import TailAddress, Tails


class TailInput(msgspec.Struct, frozen=True, kw_only=True):
    # Any: of a shape that depends on the filter
    filters: tuple[dict[str, Any], ...] = ()


async def post_tail(call: Call) -> Response:
    """Make a tail of a worker."""
    tails = _tails(call)
    # some clients send no body
    raw = await call.body()
    asked = decoded(raw, TailInput) if raw else TailInput()
    await call.services.workers.scripts.get(call.account, call.worker)
    made = await tails.open(
        call.account,
        call.worker,
        asked.filters,
        base_url=str(call.request.base_url).rstrip("/"),
        client_ip=call.request.client.host if call.request.client else "",
    )
    return success(_shown(made))


async def delete_tail(call: Call) -> Response:
    """End a tail."""
    tail_id = call.request.path_params["tail"]
    if not await _tails(call).close(call.account, call.worker, tail_id):
        raise NoSuchRecord("tail", tail_id)
    return success(None)


def _tails(call: Call) -> Tails:
    if call.services.tails is None:
        raise ScriptRefused("this edge has no tails")
    return call.services.tails


# Any: JSON
def _shown(made: TailAddress) -> dict[str, Any]:
    return {"id": made.id, "url": made.url, "expires_at": timestamp(made.expires_ms)}
