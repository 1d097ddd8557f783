"""What ends is counted: requests, their tokens, and how long they took."""

from __future__ import annotations

from dataclasses import dataclass

from opentelemetry.metrics import Meter, NoOpMeter

from tenantry_runtime.core import Usage
from tenantry_runtime.telemetry import names

from .instruments import counter, histogram
from .recent import RecentRequests
from .tenants import TopTenants

PROVIDER = "tenantry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One request that has ended, and that named a model there is."""

    operation: str
    model: str
    """Canonical id: as many values as the catalog has."""
    tenant: str
    duration_s: float
    first_token_s: float | None
    """From the headers; None: there was none, or nobody knows."""
    usage: Usage
    error: str | None
    """Class of what went wrong; None: the answer is whole."""


class RequestMeter:
    """Records requests that have ended. One histogram value and some additions each, none per token."""

    def __init__(self, meter: Meter | None = None, *, tenants: TopTenants | None = None) -> None:
        meter = meter or NoOpMeter("tenantry")
        self.recent = RecentRequests()
        self._tenants = tenants or TopTenants()
        self._duration = histogram(meter, "gen_ai.server.request.duration")
        self._first_token = histogram(meter, "gen_ai.server.time_to_first_token")
        self._per_token = histogram(meter, "gen_ai.server.time_per_output_token")
        self._requests = counter(meter, "tenantry.requests")
        self._tokens = counter(meter, "tenantry.tokens")
        self._refusals = counter(meter, "tenantry.refusals")
        self._retries = counter(meter, "tenantry.retries")

    def ended(self, request: Ended) -> None:
        usage, model = request.usage, request.model
        asked = {
            names.OPERATION: request.operation,
            names.PROVIDER: PROVIDER,
            names.REQUEST_MODEL: model,
        }
        failure = {} if request.error is None else {names.ERROR_TYPE: request.error}
        self._duration.record(request.duration_s, {**asked, **failure})
        # of whole answers alone: so the conventions
        first_token_s = request.first_token_s if request.error is None else None
        per_token_s = None
        if first_token_s is not None:
            self._first_token.record(first_token_s, asked)
            if usage.completion_tokens > 1:
                per_token_s = (request.duration_s - first_token_s) / (usage.completion_tokens - 1)
                self._per_token.record(per_token_s, asked)
        self.recent.add(
            model,
            first_token_s=first_token_s,
            per_token_s=per_token_s,
            num_tokens=usage.completion_tokens,
            is_ok=request.error is None,
        )
        tenant = self._tenants.label(request.tenant, usage.total_tokens)
        outcome = request.error or "ok"
        self._requests.add(1, {"model": model, "outcome": outcome, "tenant": tenant})
        kinds = {
            "input": usage.prompt_tokens - usage.cached_tokens,
            "cached": usage.cached_tokens,
            "output": usage.completion_tokens,
        }
        for kind, num_tokens in kinds.items():
            if num_tokens:
                self._tokens.add(num_tokens, {"model": model, "kind": kind, "tenant": tenant})

    def refused(self, model: str, reason: str) -> None:
        """Count a request that nothing of ran; `reason` is the error's class."""
        self._refusals.add(1, {"model": model, "reason": reason})

    def retried(self, model: str, num_retries: int) -> None:
        if num_retries:
            self._retries.add(num_retries, {"model": model})
