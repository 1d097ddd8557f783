"""One attempt to serve a request: which members it takes, and what it takes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tenantry_runtime.core import Phase, Share
from tenantry_runtime.pool.messages import MemberDescription

from .breaker import Breaker
from .member import Member, MemberId, pages_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What routing needs to know of a request."""

    tenant: str
    model: str
    num_tokens: int
    """Of the prompt."""
    max_tokens: int | None = None
    """None: as many as the context has room for."""
    session: str | None = None
    keys: Sequence[int] = ()
    """Of the prompt's full pages (`cache.prefix_keys`); may be left out where
    `Router.wants_keys` says so."""
    share: Share = field(default_factory=Share)
    """What the tenant has of every pool."""
    is_again: bool = False
    """Whether it has been tried or submitted before: then it earns no retries."""


class _Share(NamedTuple):
    """Of the decode member's sums."""

    tokens: int
    pages: int


class _Admission(NamedTuple):
    """A breaker as it was when a placement was made: a member that starts anew has another."""

    breaker: Breaker
    is_trial: bool


def _admitted_by(breaker: Breaker) -> _Admission:
    return _Admission(breaker, breaker.begin())


class Placement:
    """Holds its share of the members' load from the moment it is made until `end`.

    | call | when |
    |---|---|
    | `Router.prefill` | makes it; where one node runs both phases it has its decode member at once |
    | `Router.decode` | its decode member is chosen |
    | `reserve` | the decode member has pages for it |
    | `advance` | so many tokens have come of the answer; the first ends the prefill |
    | `end` | in every case, once or more often |
    """

    def __init__(
        self, asked: Asked, *, prefill: Member, num_cached: int, num_expected: int
    ) -> None:
        self.asked = asked
        self.is_whole = False
        """Whether both phases are on one node from the start, which then runs them as one."""
        self.is_reserved = False
        self._seen_pages = 0
        self._counted = _Share(0, 0)
        self._prefill = prefill
        self._decode: Member | None = None
        self._handoff: _Admission | None = None
        self._admissions: dict[Phase, _Admission] = {"prefill": _admitted_by(prefill.breaker)}
        self._num_expected = num_expected
        self._num_output = 0
        self._has_ended = False
        self._prefill_tokens = max(1, asked.num_tokens - num_cached)
        self._prompt_tokens = asked.num_tokens
        prefill.prefill_tokens += self._prefill_tokens
        prefill.prompt_tokens += self._prompt_tokens

    @property
    def prefill(self) -> MemberId:
        return self._prefill.id

    @property
    def decode(self) -> MemberId | None:
        """None until it is chosen."""
        return None if self._decode is None else self._decode.id

    @property
    def serving(self) -> dict[Phase, MemberDescription]:
        """What the members that it has have said of themselves, by phase."""
        serving = {"prefill": self._prefill, "decode": self._decode}
        phases: tuple[Phase, ...] = ("prefill", "decode")
        return {phase: member.description for phase in phases if (member := serving[phase])}

    @property
    def expected_tokens(self) -> int:
        """Of prompt and answer, when all is there."""
        return self.asked.num_tokens + max(self._num_expected, self._num_output)

    def choose(self, member: Member, handoffs: Breaker | None = None) -> None:
        """Let it decode on the member: the router calls this.

        `handoffs` is the breaker of what the two members hand over; None where they are on one node.
        """
        assert self._decode is None and not self._has_ended
        if handoffs is not None:
            self._handoff = _admitted_by(handoffs)
        self._decode = member
        self._admissions["decode"] = _admitted_by(member.breaker)
        member.placements.add(self)
        self._count()

    def be_seen(self) -> None:
        """The decode member's report counts what it has taken so far: `Member.report` calls this."""
        self._seen_pages = pages_of(self.asked.num_tokens + self._num_output)
        self._count()

    def reserve(self) -> None:
        """The decode member has pages for the prompt."""
        self.is_reserved = True

    def advance(self, num_output: int) -> None:
        """So many tokens of the answer have come."""
        self._num_output = num_output
        self.is_reserved = True
        self._end_prefill()
        self._count()

    def end(
        self,
        now_s: float,
        *,
        is_answered: bool = False,
        blamed: Sequence[Phase] = (),
        is_handoff: bool = False,
    ) -> None:
        """Give back what it holds.

        `is_answered`: both members have done all that was asked. `blamed`: these have failed it, or
        one of them has where the hand-off failed. Neither: it says nothing about them. What is said
        first counts.
        """
        if self._has_ended:
            return
        self._has_ended = True
        self._end_prefill()
        if self._decode is not None:
            self._decode.placements.discard(self)
            self._count()
        for phase, admission in self._admissions.items():
            peer = self.decode if phase == "prefill" else self.prefill
            self._settle(
                admission,
                now_s,
                is_good=is_answered,
                is_bad=phase in blamed,
                suspect_with=peer if is_handoff else None,
            )
        if self._handoff is not None:
            self._settle(self._handoff, now_s, is_good=is_answered, is_bad=is_handoff)

    def _settle(
        self,
        admission: _Admission,
        now_s: float,
        *,
        is_good: bool,
        is_bad: bool,
        suspect_with: MemberId | None = None,
    ) -> None:
        tenant = self.asked.tenant
        breaker, is_trial = admission
        if is_bad:
            breaker.fail(now_s, tenant, is_trial=is_trial, suspect_with=suspect_with)
        elif is_good:
            breaker.succeed(tenant, is_trial=is_trial)
        else:
            breaker.abandon(is_trial=is_trial)

    def _count(self) -> None:
        """Let the decode member's sums have this placement's share as it is now."""
        member, before = self._decode, self._counted
        if member is None:
            return
        now = _Share(0, 0)
        if not self._has_ended:
            pages = pages_of(self.expected_tokens) - self._seen_pages
            now = _Share(self.expected_tokens, max(0, pages))
        member.decode_tokens += now.tokens - before.tokens
        member.promised_pages += now.pages - before.pages
        self._counted = now

    def _end_prefill(self) -> None:
        self._prefill.prefill_tokens -= self._prefill_tokens
        self._prefill.prompt_tokens -= self._prompt_tokens
        self._prefill_tokens = self._prompt_tokens = 0
