"""One request inside a node: its tokens, its state, and all that it holds.

| state | in parts | holds | cache written |
|---|---|---|---|
| waiting | all | nothing | nothing |
| prefilling | whole, prefill | an owner slot, pages for all its tokens, the first of them shared; in part prefill a channel, once the decode member has said where to | `num_written` tokens |
| delivering | prefill | the same, until the decode member has confirmed | all tokens but the last |
| receiving | decode | an owner slot, pages for the prompt, the first of them shared, the others reserved for a hand-off | what has come and was verified |
| running | whole, decode | an owner slot, pages for its tokens, growing | all tokens but the last |
| finished | all | nothing | - |

| from | to | when |
|---|---|---|
| waiting | prefilling, receiving | its pages are free |
| prefilling | running | its last chunk is computed, and the decode member adopts the pages (whole) |
| prefilling | delivering | its last chunk is computed (prefill) |
| receiving | running | all pages and the hand-off's end have come and are verified |
| any but waiting | waiting | preempted; in part decode it is finished instead, and comes back as another sequence |
| delivering | finished | confirmed |

What a sequence holds is taken and released here alone. A reservation is closed before its pages are
released, so that what comes late finds nothing to be written to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from tenantry_runtime.cache.owners import OwnerSlot, OwnerSlots
from tenantry_runtime.cache.pages import Lease, StepNumber
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.cache.reservation import Reservation
from tenantry_runtime.core import PAGE_TOKENS, ChosenLogprob, FinishReason, Phase
from tenantry_runtime.log_lines import about
from tenantry_runtime.pool.handoff import Handoff
from tenantry_runtime.pool.messages import HandoffEnd, HandoffTarget, Submit, Timings

from .crossing import Delivery, Reception, pack_refs
from .guide import Guide
from .history import TokenHistory, is_adjusting


@dataclass(frozen=True, slots=True)
class Waiting:
    """In the queue, for the first time or after a preemption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilling:
    """Admitted; its tokens so far are being written chunk by chunk."""

    owner: OwnerSlot
    lease: Lease
    num_written: int
    delivery: Delivery | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivering:
    """Prefilled, its first token sampled; its pages are on their way to a decode member."""

    owner: OwnerSlot
    lease: Lease
    delivery: Delivery | None
    """None: nobody has said yet where to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiving:
    """Its pages are being brought by a hand-off."""

    owner: OwnerSlot
    lease: Lease
    reception: Reception


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """In the decode batch: each step writes its last token and samples the next."""

    owner: OwnerSlot
    lease: Lease


@dataclass(frozen=True, slots=True)
class Finished:
    """Complete, failed or canceled."""


@dataclass(frozen=True, slots=True)
class Handed:
    """How its pages came to the decode member; times are Unix time in nanoseconds, 0: none."""

    started_ns: int = 0
    ended_ns: int = 0
    num_pages: int = 0
    num_bytes: int = 0


Holding: TypeAlias = Prefilling | Delivering | Receiving | Running
SequenceState: TypeAlias = Waiting | Holding | Finished


class Sequence:
    """The one owner of a request's pages on this node."""

    __slots__ = (
        "_owners",
        "arrival",
        "first_logprob",
        "first_token_s",
        "guide",
        "handed",
        "history",
        "is_spared",
        "num_being_written",
        "num_cached",
        "num_coming",
        "num_overtaken",
        "num_preemptions",
        "num_prefill_chunks",
        "num_prompt",
        "prefill_started_s",
        "queued_s",
        "state",
        "submit",
        "tally",
        "tenant",
        "tokens",
    )

    def __init__(
        self,
        submit: Submit,
        *,
        arrival: int,
        owners: OwnerSlots,
        queued_s: float,
        guide: Guide | None = None,
    ) -> None:
        """`arrival` orders the sequences of a node by age."""
        self.submit = submit
        self.tenant = submit.party
        """Or, in the background, what stands for the tenant there."""
        self.arrival = arrival
        self.tokens = list(submit.token_ids)
        """Prompt, then output."""
        self.num_prompt = len(submit.token_ids)
        self.state: SequenceState = Waiting()
        self.queued_s = queued_s
        self.prefill_started_s: float | None = None
        self.first_token_s: float | None = None
        self.guide = guide
        """Where its answer is in its grammar, if it has one; it has taken all tokens that are generated."""
        self.history: TokenHistory | None = None
        """Kept where the request asks for penalties or biases."""
        if is_adjusting(submit.sampling):
            num_prompt = max(self.num_prompt - submit.num_generated, 0)
            self.history = TokenHistory(submit.sampling, self.tokens, num_prompt)
        self.first_logprob: ChosenLogprob | None = None
        """Of the first token, in part prefill, where the request asks for it."""
        self.num_coming = 0
        """Tokens that steps sample which have not come back."""
        self.num_being_written = 0
        """Tokens of the prompt that chunks write which have not come back."""
        self.num_prefill_chunks = 0
        self.handed = Handed()
        self.num_preemptions = 0
        """After which it stayed here."""
        self.tally: tuple[int, int] | None = None
        """The sums of its pool's decode steps when it began to decode (`tally.py`)."""
        self.num_cached: int | None = None
        """Prompt tokens whose pages were there when it was first admitted: what it is billed by."""
        self.num_overtaken = 0
        """Sequences that came later in the order and were admitted while it lacked pages."""
        self.is_spared = False
        """It was preempted and has had no token since: nobody grows at its expense."""
        self._owners = owners

    @property
    def request_id(self) -> str:
        return self.submit.request_id

    def about(self) -> dict[str, str]:
        """Return the `extra` of log records that are about it."""
        return about(self.request_id, self.submit.traceparent)

    @property
    def why_no_token(self) -> str:
        """What is wrong where none of its next tokens is possible."""
        problem = self.guide.problem if self.guide is not None else None
        return problem or "the model's logits are not finite"

    @property
    def phase(self) -> Phase:
        """The phase that it is in, or waits for."""
        match self.submit.part:
            case "whole":
                return "decode" if isinstance(self.state, Running) else "prefill"
            case part:
                return part

    @property
    def is_background(self) -> bool:
        return self.submit.is_background

    @property
    def held(self) -> Holding:
        """The state, of a sequence that holds pages."""
        assert isinstance(self.state, Holding), self.state
        return self.state

    @property
    def delivery(self) -> Delivery | None:
        """Its way to a decode member, if it has one."""
        state = self.state
        return state.delivery if isinstance(state, Prefilling | Delivering) else None

    @property
    def num_deliverable(self) -> int:
        """Tokens of the prompt in pages that are complete, of a sequence in part prefill."""
        if isinstance(self.state, Delivering):
            return self.num_prompt
        return self.num_written // PAGE_TOKENS * PAGE_TOKENS

    @property
    def num_written(self) -> int:
        """Tokens in its pages, of a sequence that is being prefilled."""
        assert isinstance(self.state, Prefilling), self.state
        return self.state.num_written

    @property
    def num_queued(self) -> int:
        """Tokens that wait or are being computed or received."""
        match self.state:
            case Waiting():
                return len(self.tokens)
            case Prefilling(num_written=num_written):
                return len(self.tokens) - num_written
            case Receiving(reception=reception):
                return (reception.num_wanted - len(reception.written)) * PAGE_TOKENS
            case _:
                return 0

    @property
    def num_missing_pages(self) -> int:
        """Pages that its tokens need beyond those it holds."""
        num_pages = 0 if isinstance(self.state, Waiting) else len(self.held.lease)
        return pages_for(len(self.tokens) + self.num_coming) - num_pages

    @property
    def is_complete(self) -> bool:
        """Whether what is coming makes its longest answer whole."""
        num_tokens = len(self.tokens) + self.num_coming
        return num_tokens - self.num_prompt >= self.submit.max_tokens

    @property
    def num_growth_pages(self) -> int:
        """Pages that its longest possible answer needs beyond those it holds."""
        return max(self._num_pages_at_most - len(self.held.lease), 0)

    @property
    def may_grow(self) -> bool:
        """Whether its longest possible answer needs more pages than its tokens so far."""
        return self._num_pages_at_most > pages_for(len(self.tokens))

    @property
    def _num_pages_at_most(self) -> int:
        """Pages that its longest possible answer needs; in part prefill it is given elsewhere."""
        if self.submit.part == "prefill":
            return 0
        # the last token is never written
        return pages_for(self.num_prompt + self.submit.max_tokens - 1)

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
        self.num_overtaken = 0
        if self.num_cached is None:
            self.num_cached = state.num_written
            self.prefill_started_s = now_s

    def reserve(self, cache_format: str) -> HandoffTarget:
        """Reserve pages for the rest of its prompt, to be written by a hand-off; return its target."""
        state = self.state
        assert isinstance(state, Prefilling), state
        first_page = len(state.lease)
        state.lease.extend(self.num_missing_pages)
        reservation = Reservation(state.lease, state.owner, first_page=first_page)
        self.state = Receiving(
            owner=state.owner, lease=state.lease, reception=Reception(reservation)
        )
        return HandoffTarget(
            model=self.submit.model,
            incarnation=0,
            handoff=reservation.handoff.number,
            cache_format=cache_format,
            first_page=first_page,
            pages=pack_refs(state.lease.refs[first_page:]),
        )

    def advance(self, num_tokens: int) -> None:
        """A chunk is written."""
        state = self.state
        assert isinstance(state, Prefilling), state
        self.num_prefill_chunks += 1
        self.state = replace(state, num_written=state.num_written + num_tokens)

    def share_prompt(self, prefixes: PrefixTrees) -> None:
        """Let later prompts of its tenant begin with its pages: those full of prompt, all verified."""
        state = self.state
        is_written = isinstance(state, Prefilling) and state.num_written >= self.num_prompt
        # of what it has received, too, and nothing that it decoded is in these pages
        assert is_written or isinstance(state, Running), state
        prefixes.insert(self.tenant, self.held.lease, self.tokens, num_verified=self.num_prompt)

    def deliver_to(self, delivery: Delivery) -> None:
        """Send its pages there, and no more to where they were sent before."""
        state = self.state
        assert isinstance(state, Prefilling | Delivering), state
        if state.delivery is not None:
            state.delivery.close()
        self.state = replace(state, delivery=delivery)

    def await_confirmation(self) -> None:
        """All of its prompt is computed and its first token sampled: what is left is to hand it over."""
        state = self.state
        assert isinstance(state, Prefilling), state
        self.state = Delivering(owner=state.owner, lease=state.lease, delivery=state.delivery)

    def ending(self) -> HandoffEnd:
        """Return what the decode member must know beside the pages."""
        state = self.state
        assert isinstance(state, Delivering) and state.delivery is not None, state
        assert self.prefill_started_s is not None and self.first_token_s is not None
        return HandoffEnd(
            handoff=state.delivery.handoff,
            num_pages=len(state.delivery.refs),
            first_token=self.tokens[-1],
            cached_tokens=self.num_cached or 0,
            queued_ns=_ns(self.queued_s),
            prefill_started_ns=_ns(self.prefill_started_s),
            first_token_ns=_ns(self.first_token_s),
            num_prefill_chunks=self.num_prefill_chunks,
            first_logprob=self.first_logprob,
            opened_ns=state.delivery.opened_ns,
            num_bytes=state.delivery.num_bytes,
        )

    def receive(self, end: HandoffEnd, now_s: float) -> None:
        """All of its pages have come and are verified: it runs from here."""
        state = self.state
        assert isinstance(state, Receiving), state
        state.reception.close(None)
        self.num_cached = end.cached_tokens
        self.queued_s = end.queued_ns / 1e9
        self.prefill_started_s = end.prefill_started_ns / 1e9
        self.first_token_s = end.first_token_ns / 1e9
        self.num_prefill_chunks = end.num_prefill_chunks
        self.handed = Handed(end.opened_ns, _ns(now_s), end.num_pages, end.num_bytes)
        self.state = Running(owner=state.owner, lease=state.lease)

    def hand_off(self, handoff: Handoff) -> None:
        """The decode member takes the pages over."""
        state = self.state
        assert isinstance(state, Prefilling), state
        self.handed = Handed(num_pages=len(state.lease))
        self.state = Running(owner=state.owner, lease=handoff.deliver(state.lease))

    def append(self, token_id: int, now_s: float) -> FinishReason | None:
        """Take the next token; return why it was the last one, if it was."""
        self.tokens.append(token_id)
        if self.guide is not None:
            self.guide.advance(token_id)
        self.is_spared = False
        if self.first_token_s is None:
            self.first_token_s = now_s
        if token_id in self.submit.stop_token_ids:
            return FinishReason.STOP
        if len(self.tokens) - self.num_prompt >= self.submit.max_tokens:
            return FinishReason.LENGTH
        return None

    def preempt(self, after: StepNumber) -> None:
        """Back to waiting, with its tokens and without its pages."""
        self.give_up_room(after)
        self.is_spared = True
        self.num_preemptions += 1

    def give_up_room(self, after: StepNumber) -> None:
        """Back to waiting: it has not been admitted, or is preempted."""
        self._release(after, "preempted")
        self.state = Waiting()

    def end(self, after: StepNumber, problem: str = "the sequence has ended") -> None:
        """`problem` is what a hand-off that is under way ends with."""
        assert not isinstance(self.state, Finished), "a sequence ends once"
        self._release(after, problem)
        self.state = Finished()

    def timings(
        self, finished_s: float, *, num_steps: int, num_step_rows: int, beside: tuple[str, ...]
    ) -> Timings:
        assert self.prefill_started_s is not None and self.first_token_s is not None
        return Timings(
            queued_ns=_ns(self.queued_s),
            prefill_started_ns=_ns(self.prefill_started_s),
            first_token_ns=_ns(self.first_token_s),
            finished_ns=_ns(finished_s),
            num_prefill_chunks=self.num_prefill_chunks,
            handoff_started_ns=self.handed.started_ns,
            handoff_ended_ns=self.handed.ended_ns if self.handed.started_ns else 0,
            num_handoff_pages=self.handed.num_pages,
            num_handoff_bytes=self.handed.num_bytes,
            num_preemptions=self.num_preemptions,
            num_steps=num_steps,
            num_step_rows=num_step_rows,
            beside=beside,
        )

    def _release(self, after: StepNumber, problem: str) -> None:
        match self.state:
            case Prefilling(delivery=delivery) | Delivering(delivery=delivery):
                if delivery is not None:
                    delivery.close()
                self._give_back(after)
            case Receiving(reception=reception):
                reception.close(problem)
                self._give_back(after)
            case Running():
                self._give_back(after)
            case Waiting() | Finished():
                pass
            case _:
                assert_never(self.state)

    def _give_back(self, after: StepNumber) -> None:
        lease = self.held.lease
        lease.pool.release(lease, after)
        self._owners.release(self.tenant)


def pages_for(num_tokens: int) -> int:
    return -(-num_tokens // PAGE_TOKENS)


def _ns(time_s: float) -> int:
    return round(time_s * 1e9)
