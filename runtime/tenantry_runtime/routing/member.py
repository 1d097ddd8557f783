"""What a router knows of one member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tenantry_runtime.core import PAGE_TOKENS, Phase
from tenantry_runtime.pool.messages import MemberDescription, MemberLoad

from .breaker import Breaker

if TYPE_CHECKING:
    from .placement import Placement

Differences: TypeAlias = Callable[[MemberDescription, MemberDescription], Sequence[object]]
"""What keeps a prefill member from handing over to a decode member; nothing: they are a pair."""


class MemberId(NamedTuple):
    """Names a member. It keeps its name, and so its sessions, when its node starts anew."""

    node: str
    model: str
    phase: Phase

    def __str__(self) -> str:
        return f"{self.node}/{self.model}:{self.phase}"


class Member:
    """One member, and what this router has placed on it."""

    def __init__(self, member_id: MemberId, description: MemberDescription) -> None:
        self.id = member_id
        self.description = description
        self.breaker = Breaker()
        self.is_healthy = True
        self.is_draining = False
        self.prefill_tokens = 0
        """Prompt tokens that are placed here and neither cached nor computed."""
        self.prompt_tokens = 0
        """The same, cached ones included: as the member itself counts what waits."""
        self.decode_tokens = 0
        """Of the prompts and answers that are placed here, expected ones included."""
        self.promised_pages = 0
        """That those will take and no report shows yet."""
        self.placements: set[Placement] = set()
        """Those that decode here, or will."""
        self._free_pages = description.num_pages
        self._foreign_growth_pages = 0
        self._foreign_tokens = 0

    @property
    def node(self) -> str:
        return self.id.node

    def is_usable(self, now_s: float) -> bool:
        """Whether new work may go here."""
        return self.is_healthy and not self.is_draining and self.breaker.admits(now_s)

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens that wait here or are being computed, whichever router has placed them."""
        return self.prefill_tokens + self._foreign_tokens

    @property
    def room_pages(self) -> int:
        """Pages that are free or can be made so, less those that what is here will still take."""
        return self._free_pages - self._foreign_growth_pages - self.promised_pages

    def renew(self, description: MemberDescription) -> None:
        """The node has started anew: what was said of its former life is void."""
        self.description = description
        self.breaker = Breaker()
        self.is_draining = False
        self._free_pages = description.num_pages
        self._foreign_growth_pages = 0
        self._foreign_tokens = 0

    def report(self, load: MemberLoad) -> None:
        """Take the member's own word for its pages; what it has of this router's is among it now."""
        self._free_pages = load.num_free_pages
        num_own = 0
        for placement in self.placements:
            if placement.is_reserved:
                num_own += 1
                placement.be_seen()
        # of other routers' sequences nothing is known but what the member says of all of them
        foreign_share = max(0, load.num_sequences - num_own) / max(1, load.num_sequences)
        self._foreign_growth_pages = round(load.num_reserved_growth_pages * foreign_share)
        # too few where some of this router's are still on their way, never too many for long
        self._foreign_tokens = max(0, load.num_queued_tokens - self.prompt_tokens)


def pages_of(num_tokens: int) -> int:
    return -(-num_tokens // PAGE_TOKENS)
