"""What the drift watch finds (`edge/drift.py`)."""

from __future__ import annotations

from opentelemetry.metrics import Meter

from .instruments import counter


class DriftMeter:
    """Counts tokens that were asked for again."""

    def __init__(self, meter: Meter) -> None:
        self._tokens = counter(meter, "tenantry.drift.tokens")

    def drifted(self, model: str, outcome: str) -> None:
        self._tokens.add(1, {"model": model, "outcome": outcome})
