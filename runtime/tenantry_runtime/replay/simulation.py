"""A replay on a simulated clock. Deterministic: the same trace and options, the same outcome.

Time passes by events: a request arrives, a member's step ends. The flow of a request is that of
`pool/messages.py`, with this class in the place of the edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from tenantry_runtime.pool.messages import SequenceTokens

from .measures import Measured
from .member import TOKEN, DecodeMember, Member, Prefilled, PrefillMember, Turn, Work
from .placement import Placement
from .prompts import Prompts
from .workload import ReplayRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberUse:
    """What one prefill member did."""

    num_requests: int
    num_prompt_tokens: int
    num_cached_tokens: int
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a simulation gave."""

    requests: tuple[Measured, ...]
    """In the order of their ends."""
    prefill: tuple[MemberUse, ...]
    num_preemptions: int
    """Of answers, in decode members: each was prefilled once more."""


@dataclass(slots=True, eq=False)
class _Live:
    request: ReplayRequest
    prefill: PrefillMember
    decode: DecodeMember | None = None
    handoff: int | None = None
    """Set when the decode member has pages for it."""
    prefilled: Prefilled | None = None
    num_cached: int | None = None
    """Of the prompt as the client sent it."""
    num_output: int = 0
    num_resubmitted: int = 0
    """Of the output: what it came back with after a preemption, as part of its prompt."""
    first_token_s: float | None = None


@dataclass(slots=True)
class _Use:
    num_requests: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0


class Simulation:
    """Members, who chooses among them, and the clock."""

    def __init__(
        self,
        *,
        prefill: Sequence[PrefillMember],
        decode: Sequence[DecodeMember],
        placement: Placement,
        prompts: Prompts,
    ) -> None:
        """Without decode members a request ends with its first token."""
        self._prefill = prefill
        self._decode = decode
        self._placement = placement
        self._prompts = prompts
        self._live: dict[str, _Live] = {}
        self._ended: list[Measured] = []
        self._ends: list[tuple[float, int, Member]] = []
        self._order = count()
        self._uses: dict[PrefillMember, _Use] = {member: _Use() for member in prefill}
        self._num_preemptions = 0

    def run(self, requests: Iterable[ReplayRequest]) -> Outcome:
        """Replay requests, in order of arrival, to the last token of the last one.

        Raises `ValueError` when one does not fit a member's cache.
        """
        arrivals: Iterator[ReplayRequest] = iter(requests)
        arrival = next(arrivals, None)
        while arrival is not None or self._ends:
            if arrival is not None and (
                not self._ends or arrival.trace.arrival_s <= self._ends[0][0]
            ):
                self._arrive(arrival)
                arrival = next(arrivals, None)
            else:
                now_s, _, member = heappop(self._ends)
                self._step_ends(member, now_s)
        assert not self._live, f"{len(self._live)} requests never ended"
        return self._outcome()

    def _arrive(self, request: ReplayRequest) -> None:
        self._check_room(request)
        self._place(request, None, request.trace.arrival_s)

    def _check_room(self, request: ReplayRequest) -> None:
        trace = request.trace
        num_tokens = trace.num_prompt + trace.num_output
        members: list[Member] = [*self._prefill, *self._decode]
        if not all(member.fits(num_tokens) for member in members):
            raise ValueError(
                f"request {trace.number} has {trace.num_prompt} prompt and {trace.num_output} output "
                "tokens: more than a member's cache holds"
            )

    def _place(self, request: ReplayRequest, preempted: _Live | None, now_s: float) -> None:
        """Send a request to a prefill member, with the answer that it had when it was preempted."""
        work = self._work(request, 0 if preempted is None else preempted.num_output)
        member = self._prefill[self._placement.choose_prefill(request, work, now_s)]
        live = _Live(request, member)
        if preempted is not None:
            live.num_cached = preempted.num_cached
            live.num_output = live.num_resubmitted = preempted.num_output
            live.first_token_s = preempted.first_token_s
        self._live[request.request_id] = live
        member.submit(work, now_s)
        self._wake(member, now_s)

    def _work(self, request: ReplayRequest, num_output: int) -> Work:
        return Work(
            request_id=request.request_id,
            tenant=request.tenant,
            session=request.session,
            token_ids=self._prompts.token_ids(request.trace) + [TOKEN] * num_output,
            max_tokens=request.trace.num_output - num_output,
            share=request.share,
        )

    def _wake(self, member: Member, now_s: float) -> None:
        """Let a member begin its next step, if it is not in one."""
        # what it says may give it more to do: a prompt that waited for its pages alone
        while not member.is_computing:
            turn = member.begin(now_s)
            if turn.end_s is not None:
                heappush(self._ends, (turn.end_s, next(self._order), member))
            self._hear(member, turn, now_s)
            if turn.end_s is None and not turn.reserved and not turn.tokens:
                return

    def _hear(self, member: Member, turn: Turn, now_s: float) -> None:
        self._advance(turn.tokens, now_s)
        for request_id in turn.started:
            self._started(self._live[request_id], now_s)
        for request_id, handoff in turn.reserved:
            live = self._live[request_id]
            live.handoff = handoff
            self._placement.reserved(request_id)
            self._hand_over(live, now_s)
        for request_id in turn.preempted:
            self._num_preemptions += 1
            self._placement.ended(request_id, None, now_s)
            live = self._live.pop(request_id)
            self._place(live.request, live, now_s)

    def _started(self, live: _Live, now_s: float) -> None:
        if not self._decode:
            return
        request_id = live.request.request_id
        live.decode = self._decode[self._placement.choose_decode(request_id, now_s)]
        live.decode.submit(self._work(live.request, live.num_output), now_s)
        self._wake(live.decode, now_s)

    def _step_ends(self, member: Member, now_s: float) -> None:
        if isinstance(member, PrefillMember):
            for prefilled in member.finish(now_s):
                self._prefilled(member, prefilled, now_s)
        elif isinstance(member, DecodeMember):
            self._advance(member.finish(now_s), now_s)
        self._placement.stepped(member, now_s)
        self._wake(member, now_s)

    def _prefilled(self, member: PrefillMember, prefilled: Prefilled, now_s: float) -> None:
        live = self._live[prefilled.request_id]
        live.prefilled = prefilled
        if live.num_cached is None:
            live.num_cached = prefilled.num_cached
            use = self._uses[member]
            use.num_requests += 1
            use.num_prompt_tokens += live.request.trace.num_prompt
            use.num_cached_tokens += prefilled.num_cached
        if self._decode:
            self._hand_over(live, now_s)
            return
        member.release(prefilled.request_id)
        live.first_token_s = now_s
        live.num_output = 1
        self._end(live, now_s)

    def _hand_over(self, live: _Live, now_s: float) -> None:
        """Move a prompt that is computed to pages that are reserved, once both are so."""
        if live.prefilled is None or live.handoff is None or live.decode is None:
            return
        request_id = live.request.request_id
        live.decode.receive(request_id, live.handoff, live.prefilled.num_cached, now_s)
        live.prefill.release(request_id)
        self._wake(live.decode, now_s)
        self._wake(live.prefill, now_s)

    def _advance(self, reports: Sequence[SequenceTokens], now_s: float) -> None:
        for report in reports:
            live = self._live[report.request_id]
            live.num_output += len(report.token_ids)
            if live.first_token_s is None:
                live.first_token_s = now_s
            num_since = live.num_output - live.num_resubmitted
            self._placement.advanced(report.request_id, num_since)
            if report.finish is not None:
                self._end(live, now_s)

    def _end(self, live: _Live, now_s: float) -> None:
        assert live.first_token_s is not None and live.num_cached is not None
        trace = live.request.trace
        del self._live[live.request.request_id]
        self._placement.ended(live.request.request_id, live.num_output, now_s)
        self._ended.append(
            Measured(
                number=trace.number,
                num_prompt=trace.num_prompt,
                num_cached=live.num_cached,
                num_output=live.num_output,
                sent_s=trace.arrival_s,
                first_token_s=live.first_token_s,
                last_token_s=now_s,
            )
        )

    def _outcome(self) -> Outcome:
        return Outcome(
            requests=tuple(self._ended),
            prefill=tuple(
                MemberUse(
                    num_requests=use.num_requests,
                    num_prompt_tokens=use.num_prompt_tokens,
                    num_cached_tokens=use.num_cached_tokens,
                    busy_s=member.busy_s,
                )
                for member, use in self._uses.items()
            ),
            num_preemptions=self._num_preemptions,
        )
