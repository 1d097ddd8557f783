"""The `Ratelimit-Policy` and `Ratelimit` fields of a response, as draft-ietf-httpapi-ratelimit-headers-11
has them: lists of policies by name.

| name | q, of the policy | w | r: what is left | t: seconds until |
|---|---|---|---|---|
| requests | requests a minute | 60 | requests | all are there again; if none is left, until one is |
| tokens | tokens a minute; `qu="tokens"` | 60 | tokens | likewise |
| concurrency | requests at one time; `qu="concurrent-requests"` | | places | |
| neurons | neurons a day; `qu="neurons"` | 86400 | whole neurons | midnight, UTC |

Only what the plan limits is there; and in `Ratelimit`, only what this edge has asked the store about.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tenantry_runtime.catalog.pricing import PICO_PER_NEURON

from . import rates
from .balances import DAY_US, seconds_of_day
from .knowledge import Knowledge
from .terms import REQUESTS, TOKENS, Terms

LIMIT_HEADER = "ratelimit"
POLICY_HEADER = "ratelimit-policy"

MAX_INTEGER = 10**15 - 1
"""Of a structured field."""


def headers(terms: Terms, knowledge: Knowledge, now_us: int) -> dict[str, str]:
    """Return where a tenant stands with one model."""
    _, requests, tokens, concurrent, neurons = terms
    fields = {POLICY_HEADER: _policy(requests, tokens, concurrent, neurons)}
    if standing := ", ".join(_standing(terms, knowledge, now_us)):
        fields[LIMIT_HEADER] = standing
    return fields


# plans are few, and this is the same for each request under one
@lru_cache(maxsize=256)
def _policy(
    requests: int | None, tokens: int | None, concurrent: int | None, neurons: float | None
) -> str:
    policies: list[str] = []
    if requests is not None:
        policies.append(f'"requests";q={_integer(requests)};w=60')
    if tokens is not None:
        policies.append(f'"tokens";q={_integer(tokens)};w=60;qu="tokens"')
    if concurrent is not None:
        policies.append(f'"concurrency";q={_integer(concurrent)};qu="concurrent-requests"')
    if neurons is not None:
        policies.append(f'"neurons";q={_integer(neurons)};w={DAY_US // 10**6};qu="neurons"')
    return ", ".join(policies)


def _standing(terms: Terms, knowledge: Knowledge, now_us: int) -> Iterator[str]:
    place = terms.place
    minutely = {
        "requests": (REQUESTS, terms.requests_per_minute),
        "tokens": (TOKENS, terms.tokens_per_minute),
    }
    for name, (limit, per_minute) in minutely.items():
        level = knowledge.level(place, limit)
        if per_minute is not None and level is not None:
            left = rates.num_free(level, per_minute, now_us)
            until_us = level.full_us - now_us
            if not left:
                until_us = rates.wait_us(level, rates.cost_us(1, per_minute), now_us)
            yield f'"{name}";r={_integer(left)};t={max(0, -(-until_us // 1_000_000))}'
    num_open = knowledge.num_open(place)
    if terms.concurrent_requests is not None and num_open is not None:
        yield f'"concurrency";r={_integer(max(0, terms.concurrent_requests - num_open))}'
    spent = knowledge.spent(place.tenant, now_us)
    if terms.daily_cost == 0:
        spent = 0
    if terms.daily_cost is not None and spent is not None:
        left = int(max(0, terms.daily_cost - spent) // PICO_PER_NEURON)
        yield f'"neurons";r={_integer(left)};t={seconds_of_day(now_us)}'


def _integer(value: float) -> int:
    return min(int(value), MAX_INTEGER)
