"""The curriculum: how long, how wide, how fast, and with which mechanisms switched on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenantry_runtime.models.config import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One stretch of training under the same conditions."""

    name: str
    num_steps: int
    row_tokens: int
    rows_per_step: int
    start_rate: float
    end_rate: float
    """Learning rate, linear between the two."""
    warmup_steps: int = 0
    learns_index: bool = False
    is_sparse: bool = False
    is_rounding: bool = False
    trains_mtp: bool = False

    def learning_rate(self, step: int) -> float:
        """Return the rate of a step, from 0."""
        ramp = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        progress = step / max(self.num_steps, 1)
        return ramp * (self.start_rate + (self.end_rate - self.start_rate) * progress)


# two hours for kimi-k2.6-nano on one core of the machine it was made on
_PLAN = (
    Phase(
        name="short",
        num_steps=5600,
        row_tokens=512,
        rows_per_step=8,
        start_rate=4e-3,
        end_rate=3e-3,
        warmup_steps=50,
    ),
    Phase(
        name="long",
        num_steps=1200,
        row_tokens=4096,
        rows_per_step=1,
        start_rate=3e-3,
        end_rate=1.5e-3,
        learns_index=True,
    ),
    Phase(
        name="stored",
        num_steps=1500,
        row_tokens=4096,
        rows_per_step=1,
        start_rate=1.5e-3,
        end_rate=0.0,
        learns_index=True,
        is_sparse=True,
        is_rounding=True,
        trains_mtp=True,
    ),
)


def phases(family: Family, scale: float = 1.0) -> tuple[Phase, ...]:
    """Return the phases of a family; switches that a family lacks are off."""
    scaled = (replace(phase, num_steps=round(phase.num_steps * scale)) for phase in _PLAN)
    if family == "glm":
        return tuple(scaled)
    return tuple(
        replace(phase, learns_index=False, is_sparse=False, trains_mtp=False) for phase in scaled
    )
