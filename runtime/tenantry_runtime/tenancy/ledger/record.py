"""A usage record, and what of a request it bills."""

from __future__ import annotations

import msgspec

from tenantry_runtime.catalog import TokenPrices, cost
from tenantry_runtime.core import Usage
from tenantry_runtime.tenancy.billing import Interruption

NOTHING = Usage(prompt_tokens=0, completion_tokens=0)


# array_like: journals hold thousands of these
class UsageRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One row of `schema.usage`, field by field."""

    request_id: str
    account_id: str
    token_id: str
    model: str
    worker: str
    worker_version: str
    started_ms: int
    ended_ms: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    input_price: int
    cached_price: int
    output_price: int
    cost: int
    revision: str
    formats: str
    trace_id: str
    outcome: str


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What is known of a request when it starts, prices included."""

    request_id: str
    account_id: str
    token_id: str
    model: str
    worker: str
    worker_version: str
    trace_id: str
    started_ms: int
    input_tokens: int
    prices: TokenPrices


def billed(
    interruption: Interruption | None, *, delivered: Usage | None, generated: Usage
) -> Usage:
    """Return what of a request is billed. `delivered` is None where nothing was.

    | how it ended | input, cached | output |
    |---|---|---|
    | whole | all | all |
    | the client went away | all, once a first token was generated, else 0 | generated |
    | failed, timed out, edge told to end; streamed | all, if anything was delivered, else 0 | delivered |
    | the same; not streamed | 0 | 0: nothing of it is ever delivered |
    | the edge died | all, if anything was delivered, else 0 | delivered |
    """
    match interruption:
        case None:
            return generated
        case Interruption.CLIENT_GONE:
            return generated if generated.completion_tokens else NOTHING
        case _:
            return delivered or NOTHING


def make_record(
    facts: RequestFacts,
    usage: Usage,
    *,
    ended_ms: int,
    outcome: str,
    revision: str = "",
    formats: str = "",
) -> UsageRecord:
    """Make the record of what `billed` says."""
    prices = facts.prices
    return UsageRecord(
        request_id=facts.request_id,
        account_id=facts.account_id,
        token_id=facts.token_id,
        model=facts.model,
        worker=facts.worker,
        worker_version=facts.worker_version,
        started_ms=facts.started_ms,
        ended_ms=ended_ms,
        input_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        input_price=prices.input,
        cached_price=prices.cached,
        output_price=prices.output,
        cost=cost(usage, prices),
        revision=revision,
        formats=formats,
        trace_id=facts.trace_id,
        outcome=outcome,
    )
