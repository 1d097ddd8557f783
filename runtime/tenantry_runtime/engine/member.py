"""One model in one phase on one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.core import PAGE_TOKENS, Phase
from tenantry_runtime.pool.handoff import Endpoint
from tenantry_runtime.pool.messages import MemberDescription, OpCoverage

from .plan import StepPlan, StepResult


class StepInFlight(Protocol):
    """A launched step."""

    def collect(self) -> StepResult:
        """Wait for the step; raises what went wrong in it."""
        ...


class StepRunner(Protocol):
    """What computes a member's steps (`runner.Runner`)."""

    @property
    def runs_ahead(self) -> bool:
        """Whether steps are computed elsewhere: `launch` returns before, and the next may be launched."""
        ...

    def launch(
        self, plan: StepPlan, *, earlier: Sequence[StepInFlight], settle: Callable[[], None]
    ) -> StepInFlight:
        """Start a step.

        `earlier`: those of the pool that have not been collected, whose tokens it may read. Where it
        has to know more of them, it calls `settle`, which collects and commits them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """What a member is, as the other side of a pairing must know it."""

    model: str
    phase: Phase
    weights: str
    """Format of the weights."""
    cache: str
    """Format of the pages."""
    context_tokens: int
    """Of one sequence: what the model was made for and the pool has room for."""
    revision: str
    """SHA-256 that names the checkpoint (`models.checkpoint.Checkpoint.revision`)."""
    coverage: tuple[OpCoverage, ...] = ()
    """By the check of pages."""
    source_revision: str = ""
    """Of the checkpoint that this one was converted from; empty: it was not converted."""
    recipe: str = ""
    tokenizer_digest: str = ""
    template_digest: str = ""
    page_layout: str = ""
    """Of a page on the wire (`cache/wire_pages.py`)."""


class Member:
    """Runs the steps of its phase. Members of one model may share a pool and a runner."""

    def __init__(self, spec: MemberSpec, *, pool: PageAllocator, runner: StepRunner) -> None:
        self.spec = spec
        self.pool = pool
        self._runner = runner

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(pool=self.pool, cache_format=self.spec.cache)

    @property
    def runs_ahead(self) -> bool:
        return self._runner.runs_ahead

    def launch(
        self, plan: StepPlan, *, earlier: Sequence[StepInFlight], settle: Callable[[], None]
    ) -> StepInFlight:
        assert plan.phase == self.spec.phase
        return self._runner.launch(plan, earlier=earlier, settle=settle)

    def describe(self) -> MemberDescription:
        return MemberDescription(
            model=self.spec.model,
            phase=self.spec.phase,
            weights_format=self.spec.weights,
            cache_format=self.spec.cache,
            page_tokens=PAGE_TOKENS,
            num_pages=self.pool.statistics().num_pages,
            context_tokens=self.spec.context_tokens,
            revision=self.spec.revision,
            coverage=self.spec.coverage,
            source_revision=self.spec.source_revision or self.spec.revision,
            recipe=self.spec.recipe,
            tokenizer_digest=self.spec.tokenizer_digest,
            template_digest=self.spec.template_digest,
            page_layout=self.spec.page_layout,
        )
