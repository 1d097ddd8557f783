"""Nodes that say what a test has written for them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
import msgspec

from support.plain_text import GLM, KIMI
from tenantry_runtime.core import FinishReason, Phase
from tenantry_runtime.errors import TenantryError
from tenantry_runtime.pool.bell import Bell
from tenantry_runtime.pool.interface import RunningSequence
from tenantry_runtime.pool.messages import (
    Deliver,
    HandoffTarget,
    MemberDescription,
    NodeDescription,
    OpCoverage,
    SequenceTokens,
    ServedElsewhere,
    Started,
    Submit,
    Timings,
)
from tenantry_runtime.pool.page_map import PageMaps

Step: TypeAlias = str | list[int] | anyio.Event | TenantryError
"""Tokens of one step, as characters or ids; or wait until the event is set; or fail."""

NODE_CONTEXT_TOKENS = 1 << 20
PHASES: tuple[Phase, ...] = ("prefill", "decode")


_serial = itertools.count()


class WholeSequence:
    """A `RunningSequence` that is only read."""

    started: Started | None = None
    target: HandoffTarget | None = None
    has_tokens = False
    error: TenantryError | None = None

    def __init__(self, tokens: AsyncIterator[SequenceTokens]) -> None:
        self._tokens = tokens

    def deliver(self, message: Deliver) -> None:
        raise AssertionError

    def __aiter__(self) -> AsyncIterator[SequenceTokens]:
        return self._tokens

    async def __anext__(self) -> SequenceTokens:
        return await anext(self._tokens)


class FakeTokenSource:
    """A `TokenSource` that runs the same script for every sequence.

    A script that ends with a stop token finishes with STOP, any other with LENGTH; `endless`
    repeats the last step for ever.
    """

    def __init__(
        self,
        *script: Step,
        endless: bool = False,
        cached_tokens: int = 0,
        timings: Timings | None = None,
        models: Sequence[str] = (KIMI.id, GLM.id),
        phases: Sequence[Phase] = PHASES,
        context_tokens: int = NODE_CONTEXT_TOKENS,
        finishes: bool = True,
        crowd: int = 0,
        coverage: Sequence[OpCoverage] = (),
        address: str | None = None,
    ) -> None:
        self.address = address or f"fake:{next(_serial)}"
        self.is_healthy = True
        self.submits: list[Submit] = []
        self.heard: list[ServedElsewhere] = []
        self.page_maps = PageMaps(pools=())
        """What it was told of other nodes."""
        self.num_steps = 0
        """Steps that were taken from the node."""
        self.started = anyio.Event()
        self.cancelled = anyio.Event()
        """Set when a sequence was left before its finish."""
        self.crowded = anyio.Event()
        """Set when `crowd` sequences are open at one time."""
        self.num_open = 0
        self._script = script
        self._is_endless = endless
        self._cached_tokens = cached_tokens
        self._timings = timings
        self._finishes = finishes
        self._crowd = crowd
        self._description = _description(models, phases, context_tokens, coverage)

    @property
    def description(self) -> NodeDescription:
        return self._description

    async def pages(self) -> PageMaps:
        return self.page_maps

    def pass_on(self, served: ServedElsewhere) -> None:
        self.heard.append(served)

    def restart(self) -> None:
        """Begin a new life."""
        incarnation = self._description.incarnation + 1
        self._description = msgspec.structs.replace(self._description, incarnation=incarnation)

    @asynccontextmanager
    async def generate(
        self, submit: Submit, bell: Bell | None = None
    ) -> AsyncIterator[RunningSequence]:
        self.submits.append(submit)
        self.num_open += 1
        self.started.set()
        if self.num_open == self._crowd:
            self.crowded.set()
        has_finished = [False]
        try:
            yield WholeSequence(self._run(submit, has_finished))
        finally:
            self.num_open -= 1
            if not has_finished[0]:
                self.cancelled.set()

    async def _run(self, submit: Submit, has_finished: list[bool]) -> AsyncIterator[SequenceTokens]:
        is_first = True
        for index, step in self._steps():
            if isinstance(step, anyio.Event):
                await step.wait()
                continue
            if isinstance(step, TenantryError):
                raise step
            token_ids = [ord(char) if isinstance(char, str) else char for char in step]
            await anyio.lowlevel.checkpoint()
            finish = self._finish(index, token_ids, submit)
            has_finished[0] = finish is not None
            self.num_steps += 1
            yield SequenceTokens(
                request_id=submit.request_id,
                token_ids=tuple(token_ids),
                finish=finish,
                cached_tokens=self._cached_tokens if is_first else 0,
                timings=self._timings if finish else None,
            )
            is_first = False

    def _steps(self) -> Iterable[tuple[int, Step]]:
        repeated = itertools.repeat(self._script[-1]) if self._is_endless else ()
        return enumerate(itertools.chain(self._script, repeated))

    def _finish(self, index: int, token_ids: Sequence[int], submit: Submit) -> FinishReason | None:
        if self._is_endless or not self._finishes or index < len(self._script) - 1:
            return None
        is_stopped = bool(token_ids) and token_ids[-1] in submit.stop_token_ids
        return FinishReason.STOP if is_stopped else FinishReason.LENGTH


def _description(
    models: Sequence[str],
    phases: Sequence[Phase],
    context_tokens: int,
    coverage: Sequence[OpCoverage],
) -> NodeDescription:
    members = tuple(
        MemberDescription(
            model=model,
            phase=phase,
            weights_format="bf16",
            cache_format="bf16",
            page_tokens=64,
            num_pages=64,
            context_tokens=context_tokens,
            revision="0" * 64,
            coverage=tuple(coverage),
        )
        for model in models
        for phase in phases
    )
    return NodeDescription(version=1, incarnation=1, members=members)
