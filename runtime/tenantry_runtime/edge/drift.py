"""Drift watch: what answers would have been in the formats that prompts are computed in, a token at a time.

An answer's first token is the prefill member's; the others are the decode member's, whose weights and
cache take fewer bits. Noise is a function of seed and position, and a node that is told how much of a
prompt was generated knows where its grammar and its penalties stand. So a request whose prompt is an
answer's beginning has for its first token what the prefill member would have said there: the answer's own
next one, unless the formats mean another.

| outcome | the token at a place of an answer |
|---|---|
| same | is the prefill member's, too |
| other | is not |
| unknown | nobody knows: there was no room, or no node |

Who is asked again is in the background of the pools (`engine/background.py`) and takes nothing that
anybody wants. It is the tenant's own, as the answer was, and in no account: no limit, no usage, no
trace, no expected length knows of it.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, Protocol

import anyio
from msgspec.structs import replace

from tenantry_runtime.cache.prefix_keys import page_keys
from tenantry_runtime.errors import TenantryError
from tenantry_runtime.pool.messages import SequenceTokens, Submit
from tenantry_runtime.routing.placement import Asked

from .config import DriftConfig
from .nodes import Nodes
from .sequence import RequestSequence

MAX_WAITING = 64
"""Answers. What comes beside them is not looked at."""

PATIENCE_S = 60.0
"""For one token."""

MAX_AGE_S = 300.0
"""What has waited for longer is forgotten: it is a tenant's, and nobody asks for it."""

Outcome = Literal["same", "other", "unknown"]

_log = logging.getLogger(__name__)


class Watch(Protocol):
    """Hears of whole answers."""

    def answered(self, submit: Submit, output: Sequence[int]) -> None:
        """Take note of the tokens that a sequence has come to. Returns at once."""
        ...


class Unwatched:
    """Looks at nothing."""

    def answered(self, submit: Submit, output: Sequence[int]) -> None:
        pass


class Judged(Protocol):
    """Counts outcomes."""

    def drifted(self, model: str, outcome: Outcome) -> None: ...


@dataclass(frozen=True, slots=True)
class _Answer:
    submit: Submit
    output: tuple[int, ...]
    heard_s: float


class DriftWatch:
    """Asks for some places of some answers again, one after the other."""

    def __init__(
        self,
        nodes: Nodes,
        config: DriftConfig,
        judged: Judged,
        *,
        rng: random.Random | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nodes = nodes
        self._config = config
        self._judged = judged
        self._rng = rng or random.Random()
        self._clock_s = clock_s
        self._waiting: deque[_Answer] = deque()
        self._has_come = anyio.Event()

    @property
    def num_waiting(self) -> int:
        """Answers that are still to be looked at."""
        return len(self._waiting)

    def answered(self, submit: Submit, output: Sequence[int]) -> None:
        # the first is the prefill member's in any case
        if len(output) < 2 or len(self._waiting) >= MAX_WAITING:
            return
        if self._rng.random() < self._config.share:
            self._waiting.append(_Answer(submit, tuple(output), self._clock_s()))
            self._has_come.set()

    async def run(self) -> NoReturn:
        """Look at what is waiting, until canceled."""
        while True:
            await self._has_come.wait()
            self._has_come = anyio.Event()
            while self._waiting:
                answer = self._waiting.popleft()
                if self._clock_s() - answer.heard_s <= MAX_AGE_S:
                    await self._look_at(answer)

    async def _look_at(self, answer: _Answer) -> None:
        # in order, so that each begins with the pages of the one before
        places = range(1, len(answer.output))
        chosen = self._rng.sample(places, min(self._config.places, len(places)))
        for place in sorted(chosen):
            try:
                outcome = await self._outcome(answer, place)
            except TenantryError:
                outcome = "unknown"
            except Exception:
                # what nobody waits for ends nothing else
                _log.exception("a token could not be asked for again")
                outcome = "unknown"
            self._judged.drifted(answer.submit.model, outcome)

    async def _outcome(self, answer: _Answer, place: int) -> Outcome:
        token_id: int | None = None

        async def take(tokens: SequenceTokens) -> bool:
            nonlocal token_id
            token_id = tokens.token_ids[0]
            return True

        again = _beginning(answer, place)
        sequence = RequestSequence(self._nodes, self._asked(again), submit=lambda _context: again)
        with anyio.move_on_after(PATIENCE_S):
            await sequence.run(take)
        if token_id is None:
            return "unknown"
        return "same" if token_id == answer.output[place] else "other"

    def _asked(self, submit: Submit) -> Asked:
        keys: list[int] = []
        if self._nodes.router.wants_keys(submit.model):
            keys = page_keys(submit.party, submit.token_ids)
        return Asked(
            tenant=submit.tenant,
            model=submit.model,
            num_tokens=len(submit.token_ids),
            max_tokens=1,
            keys=keys,
            share=submit.share,
            is_again=True,
        )


def _beginning(answer: _Answer, place: int) -> Submit:
    """Return what asks for the token at a place of an answer."""
    submit = answer.submit
    return replace(
        submit,
        request_id=str(uuid.uuid4()),
        token_ids=[*submit.token_ids, *answer.output[:place]],
        num_generated=submit.num_generated + place,
        sampling=replace(submit.sampling, top_logprobs=None),
        max_tokens=1,
        session=None,
        may_wait=True,
        max_waiting=None,
        is_background=True,
        traceparent="",
    )
