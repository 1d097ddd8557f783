"""Which members serve a request: the router's ways, and what they are compared with.

| name | who chooses the prefill member |
|---|---|
| `affinity` | `routing.Router`, told the session (`routed.py`) |
| `prefix` | `routing.Router`, told no session: the longest prefix that the members have reported |
| `round-robin` | each in turn |
| `oracle` | the longest prefix that a member really has at this moment; among equals, the least load |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from tenantry_runtime.core import PAGE_TOKENS

from .member import DecodeMember, Member, PrefillMember, Work
from .workload import ReplayRequest


class Placement(ABC):
    """Chooses members, and is told what the edge of a running system would be told."""

    def __init__(self, prefill: Sequence[PrefillMember], decode: Sequence[DecodeMember]) -> None:
        self._prefill = prefill
        self._decode = decode

    @abstractmethod
    def choose_prefill(self, request: ReplayRequest, work: Work, now_s: float) -> int:
        """Return the member's number; its queue is as it is before the request joins it."""

    def choose_decode(self, request_id: str, now_s: float) -> int:
        """Return the member's number: the one with most room."""
        return max(range(len(self._decode)), key=lambda number: self._decode[number].num_room_pages)

    # a placement that knows nothing of the past overrides none of these
    def reserved(self, request_id: str) -> None:  # noqa: B027
        """The decode member has pages for the request."""

    def advanced(self, request_id: str, num_output: int) -> None:  # noqa: B027
        """So many tokens have come since the request was placed; the first ends the prefill."""

    def ended(self, request_id: str, num_output: int | None, now_s: float) -> None:  # noqa: B027
        """The answer is complete; None: it was preempted and will be placed again."""

    def stepped(self, member: Member, now_s: float) -> None:  # noqa: B027
        """A member's step has ended: it says what has changed."""


class RoundRobin(Placement):
    """Each member in turn."""

    _next = 0

    def choose_prefill(self, request: ReplayRequest, work: Work, now_s: float) -> int:
        number = self._next % len(self._prefill)
        self._next += 1
        return number


class Oracle(Placement):
    """Knows what every member's cache holds at this moment.

    Only what follows the first block counts as a prefix, as it does for sessions: where all prompts
    begin alike, the member that was first to see one would be sent all others. Among equals the
    shortest queue decides, then who was given least so far, lest idle members stay empty.
    """

    def choose_prefill(self, request: ReplayRequest, work: Work, now_s: float) -> int:
        num_first = request.trace.block_tokens // PAGE_TOKENS

        def cost(number: int) -> tuple[int, int, int]:
            member = self._prefill[number]
            num_pages = member.prefixes.num_cached(work.tenant, work.token_ids) // PAGE_TOKENS
            known = num_pages if num_pages > num_first else 0
            return -known, member.num_queued_tokens, member.num_placed_tokens

        return min(range(len(self._prefill)), key=cost)
