"""Usage as OpenAI's chat and completions APIs print it."""

from __future__ import annotations

import msgspec

from tenantry_runtime.catalog import TokenPrices, cost, neurons
from tenantry_runtime.core import Usage


class CachedDetails(msgspec.Struct, frozen=True, kw_only=True):
    cached_tokens: int


class ReasoningDetails(msgspec.Struct, frozen=True, kw_only=True):
    reasoning_tokens: int


class UsageOutput(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedDetails
    completion_tokens_details: ReasoningDetails
    neurons: float | msgspec.UnsetType = msgspec.UNSET
    """What it costs, as Workers AI says it; of a model with prices."""


def usage_output(usage: Usage, prices: TokenPrices | None) -> UsageOutput:
    """Print usage; with prices, also what it costs."""
    return UsageOutput(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=CachedDetails(cached_tokens=usage.cached_tokens),
        completion_tokens_details=ReasoningDetails(reasoning_tokens=usage.reasoning_tokens),
        neurons=msgspec.UNSET if prices is None else neurons(cost(usage, prices)),
    )
