"""One attempt at a request of a batch: the same as a request by itself, with nobody who waits for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import anyio
import msgspec

from tenantry_runtime.core import Event, Finish, Usage
from tenantry_runtime.errors import TenantryError
from tenantry_runtime.telemetry import RequestSpan
from tenantry_runtime.tenancy.batch_queue import BatchQueue, Claim
from tenantry_runtime.tenancy.batches import BatchResponse

from .dialects.dialect import Dialect
from .generation import Generation
from .off_loop import off_loop
from .offer import Offer
from .services import Services
from .trail import Trail

ROUTE = "/client/v4/accounts/{account}/ai/run/{model:path}?queueRequest=true"
"""Names its span."""


class Printed(msgspec.Struct, frozen=True, kw_only=True):
    """What of a whole answer is the response's result."""

    result: msgspec.Raw


_printed = msgspec.json.Decoder(Printed)


async def answer_claim(
    claim: Claim,
    services: Services,
    dialect: Dialect,
    *,
    queue: BatchQueue,
    closing: anyio.CancelScope,
    attempt: anyio.CancelScope,
) -> tuple[BatchResponse, Usage]:
    """Run a request to its end; raises whatever a request by itself is answered with.

    `closing` is canceled when this edge ends, `attempt` when the request is not ours any more.
    """
    span = RequestSpan(
        services.tracer,
        headers={},
        method="POST",
        route=ROUTE,
        server=None,
        request_id=claim.request_id,
        meter=services.meter,
    )
    trail = Trail(admission=closing, deadline=attempt)
    try:
        return await _answer(claim, services, dialect, queue, span, trail)
    except TenantryError as error:
        span.failed(error)
        raise
    finally:
        span.end(status=None)


async def _answer(
    claim: Claim,
    services: Services,
    dialect: Dialect,
    queue: BatchQueue,
    span: RequestSpan,
    trail: Trail,
) -> tuple[BatchResponse, Usage]:
    principal = await queue.principal(claim)
    offer = services.offers.resolve(claim.model)
    if await queue.is_billed(claim):
        offer = _without_prices(offer)
    request = await off_loop(
        partial(dialect.parse, claim.body, offer.target, session=None),
        num_bytes=len(claim.body),
        limiter=services.threads,
    )
    span.asked(request, model=claim.model, tenant=principal.tenant)
    printer = dialect.printer(
        request,
        offer.target,
        response_id=f"{dialect.id_prefix}{claim.request_id}",
        created_s=int(time.time()),
    )
    generation = Generation(
        request=request,
        body_bytes=len(claim.body),
        request_id=claim.request_id,
        principal=principal,
        offer=offer,
        nodes=services.nodes,
        limiter=services.limiter,
        ledger=services.ledger,
        span=span,
        threads=services.threads,
        trail=trail,
        drift=services.drift,
        is_background=True,
    )
    choices: list[list[Event]] = [[] for _ in range(request.num_choices)]

    async def keep(events: Sequence[Event], choice: int) -> None:
        choices[choice].extend(events)

    endings = await generation.run(keep, response_id=printer.response_id)
    for events, ending in zip(choices, endings, strict=True):
        events += ending
    finish = choices[-1][-1]
    assert isinstance(finish, Finish)
    response = BatchResponse(
        id=claim.number,
        success=True,
        external_reference=claim.external_reference,
        result=_printed.decode(printer.result(choices)).result,
    )
    return response, finish.usage


def _without_prices(offer: Offer) -> Offer:
    return replace(offer, entry=msgspec.structs.replace(offer.entry, prices=None))
