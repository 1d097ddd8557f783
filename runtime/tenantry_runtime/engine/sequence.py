"""One request inside a node: its tokens, its state, and all that it holds.

| state | holds | cache written |
|---|---|---|
| waiting | nothing | nothing |
| prefilling | an owner slot, pages for all its tokens, the first of them shared | `num_written` tokens |
| running | the same, adopted by the decode member, growing | all tokens but the last |
| finished | nothing | - |

What a sequence holds is taken and released here alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from tenantry_runtime.cache.owners import OwnerSlot, OwnerSlots
from tenantry_runtime.cache.pages import Lease, StepNumber
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.core import PAGE_TOKENS, FinishReason
from tenantry_runtime.pool.handoff import Handoff
from tenantry_runtime.pool.messages import Submit, Timings


@dataclass(frozen=True, slots=True)
class Waiting:
    """In the queue, for the first time or after a preemption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilling:
    """Admitted; its tokens so far are being written chunk by chunk."""

    owner: OwnerSlot
    lease: Lease
    num_written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """In the decode batch: each step writes its last token and samples the next."""

    owner: OwnerSlot
    lease: Lease


@dataclass(frozen=True, slots=True)
class Finished:
    """Complete, failed or canceled."""


SequenceState: TypeAlias = Waiting | Prefilling | Running | Finished


class Sequence:
    """The one owner of a request's pages on this node."""

    __slots__ = (
        "_owners",
        "arrival",
        "first_token_s",
        "num_cached",
        "num_prefill_chunks",
        "num_prompt",
        "prefill_started_s",
        "queued_s",
        "state",
        "submit",
        "tokens",
    )

    def __init__(
        self, submit: Submit, *, arrival: int, owners: OwnerSlots, queued_s: float
    ) -> None:
        """`arrival` orders the sequences of a node by age."""
        self.submit = submit
        self.arrival = arrival
        self.tokens = list(submit.token_ids)
        """Prompt, then output."""
        self.num_prompt = len(submit.token_ids)
        self.state: SequenceState = Waiting()
        self.queued_s = queued_s
        self.prefill_started_s: float | None = None
        self.first_token_s: float | None = None
        self.num_prefill_chunks = 0
        self.num_cached: int | None = None
        """Prompt tokens whose pages were there when it was first admitted: what it is billed by."""
        self._owners = owners

    @property
    def request_id(self) -> str:
        return self.submit.request_id

    @property
    def tenant(self) -> str:
        return self.submit.tenant

    @property
    def held(self) -> Prefilling | Running:
        """The state, of a sequence that holds pages."""
        assert isinstance(self.state, Prefilling | Running), self.state
        return self.state

    @property
    def num_written(self) -> int:
        """Tokens in its pages, of a sequence that is being prefilled."""
        assert isinstance(self.state, Prefilling), self.state
        return self.state.num_written

    @property
    def num_missing_pages(self) -> int:
        """Pages that its tokens need beyond those it holds."""
        num_pages = 0 if isinstance(self.state, Waiting) else len(self.held.lease)
        return pages_for(len(self.tokens)) - num_pages

    @property
    def may_grow(self) -> bool:
        """Whether its longest possible answer needs more pages than its tokens so far."""
        # the last token is never written
        num_tokens = self.num_prompt + self.submit.max_tokens - 1
        return pages_for(num_tokens) > pages_for(len(self.tokens))

    def find_prefix(self, prefixes: PrefixTrees) -> None:
        """Hold the pages that its tokens begin with, as far as they are known; it lacks the others."""
        assert isinstance(self.state, Waiting), self.state
        owner = self._owners.acquire(self.tenant)
        lease, num_cached = prefixes.match(self.tenant, owner, self.tokens)
        self.state = Prefilling(owner=owner, lease=lease, num_written=num_cached)

    def admit(self, now_s: float) -> None:
        """Reserve pages for the rest of its tokens."""
        state = self.state
        assert isinstance(state, Prefilling), state
        state.lease.extend(self.num_missing_pages)
        if self.num_cached is None:
            self.num_cached = state.num_written
            self.prefill_started_s = now_s

    def advance(self, num_tokens: int) -> None:
        """A chunk is written."""
        state = self.state
        assert isinstance(state, Prefilling), state
        self.num_prefill_chunks += 1
        self.state = Prefilling(
            owner=state.owner, lease=state.lease, num_written=state.num_written + num_tokens
        )

    def share_prompt(self, prefixes: PrefixTrees) -> None:
        """Let later prompts of its tenant begin with its pages: those full of prompt, all verified."""
        state = self.state
        assert isinstance(state, Prefilling) and state.num_written >= self.num_prompt, state
        prefixes.insert(self.tenant, state.lease, self.tokens, num_verified=self.num_prompt)

    def hand_off(self, handoff: Handoff) -> None:
        """The decode member takes the pages over."""
        state = self.state
        assert isinstance(state, Prefilling), state
        self.state = Running(owner=state.owner, lease=handoff.deliver(state.lease))

    def append(self, token_id: int, now_s: float) -> FinishReason | None:
        """Take the next token; return why it was the last one, if it was."""
        self.tokens.append(token_id)
        if self.first_token_s is None:
            self.first_token_s = now_s
        if token_id in self.submit.stop_token_ids:
            return FinishReason.STOP
        if len(self.tokens) - self.num_prompt >= self.submit.max_tokens:
            return FinishReason.LENGTH
        return None

    def preempt(self, after: StepNumber) -> None:
        """Back to waiting, with its tokens and without its pages."""
        self._release(after)
        self.state = Waiting()

    def end(self, after: StepNumber) -> None:
        assert not isinstance(self.state, Finished), "a sequence ends once"
        self._release(after)
        self.state = Finished()

    def timings(self, finished_s: float) -> Timings:
        assert self.prefill_started_s is not None and self.first_token_s is not None
        return Timings(
            queued_ns=_ns(self.queued_s),
            prefill_started_ns=_ns(self.prefill_started_s),
            first_token_ns=_ns(self.first_token_s),
            finished_ns=_ns(finished_s),
            num_prefill_chunks=self.num_prefill_chunks,
        )

    def _release(self, after: StepNumber) -> None:
        match self.state:
            case Prefilling(lease=lease) | Running(lease=lease):
                lease.pool.release(lease, after)
                self._owners.release(self.tenant)
            case Waiting() | Finished():
                pass
            case _:
                assert_never(self.state)


def pages_for(num_tokens: int) -> int:
    return -(-num_tokens // PAGE_TOKENS)


def _ns(time_s: float) -> int:
    return round(time_s * 1e9)
