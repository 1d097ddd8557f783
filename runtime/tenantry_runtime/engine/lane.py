"""One page pool on one node: the members of one model that keep their pages in it, and their scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.cache.tags import Tracker
from tenantry_runtime.cache.wire import PageWire
from tenantry_runtime.core import Phase
from tenantry_runtime.errors import ContextExceeded
from tenantry_runtime.pool.messages import Failed, MemberLoad, Part, Submit

from .exchange import ServiceExchange
from .guide import Guides
from .member import Member
from .meter import LaneMeter
from .room import ceiling_tokens
from .scheduler import Scheduler
from .upkeep import Upkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What the loop turns for one pool: both members of a model, or one with a pool of its own."""

    scheduler: Scheduler
    members: Mapping[Phase, Member]
    pool: PageAllocator
    prefixes: PrefixTrees
    tracker: Tracker
    page_wire: PageWire | None
    """None: nothing goes in or out of the pool."""
    upkeep: Upkeep
    exchange: ServiceExchange
    vocab_size: int
    guides: Guides
    meter: LaneMeter = field(default_factory=LaneMeter)

    @property
    def model(self) -> str:
        return next(iter(self.members.values())).spec.model

    @property
    def name(self) -> str:
        """For messages to people."""
        return self.model if self.hosts("whole") else f"{self.model} ({'/'.join(self.members)})"

    def member(self, phase: Phase) -> Member:
        return self.members[phase]

    @property
    def runs_ahead(self) -> bool:
        """Whether its steps are planned before those before them have come back."""
        return any(member.runs_ahead for member in self.members.values())

    @property
    def wire(self) -> PageWire:
        assert self.page_wire is not None, "no part of a sequence is run here"
        return self.page_wire

    def hosts(self, part: Part) -> bool:
        if part == "whole":
            return len(self.members) == 2
        return part in self.members and self.page_wire is not None

    def refusal(self, submit: Submit) -> Failed | None:
        """Return why the sequence could not run even on an idle node, None if it could."""
        token_ids = submit.token_ids
        if not token_ids or submit.max_tokens < 1:
            return _failed(submit, "internal", "a sequence needs a prompt and room for an answer")
        # one bad id would fail the whole step, and with it the sequences of others
        if min(token_ids) < 0 or max(token_ids) >= self.vocab_size:
            return _failed(submit, "internal", f"a token id is not in 0..{self.vocab_size - 1}")
        # what decodes elsewhere needs no room here
        max_tokens = 0 if submit.part == "prefill" else submit.max_tokens
        num_tokens = len(token_ids) + max_tokens
        limit = self.member("prefill" if submit.part == "prefill" else "decode").spec.context_tokens
        if num_tokens > limit:
            return _failed(submit, "context", str(ContextExceeded(num_tokens, limit)))
        most = ceiling_tokens(submit.share, self.pool.num_pages)
        if num_tokens > most:
            message = (
                f"prompt and answer may have {num_tokens} tokens, and the tenant's ceiling of "
                f"{submit.share.ceiling:g} of the pages is {most}; ask for a shorter answer"
            )
            return _failed(submit, "context", message)
        return None

    def loads(self) -> list[MemberLoad]:
        """Return what routing needs to know of the members. O(sequences)."""
        loads = []
        for phase in self.members:
            load = self.scheduler.load(phase)
            loads.append(
                MemberLoad(
                    model=self.model,
                    phase=phase,
                    num_free_pages=self.pool.num_free + self.prefixes.num_evictable,
                    num_reserved_growth_pages=load.num_growth_pages,
                    num_queued_tokens=load.num_queued_tokens,
                    num_sequences=load.num_sequences,
                )
            )
        return loads


def _failed(submit: Submit, reason: str, message: str) -> Failed:
    return Failed(request_id=submit.request_id, reason=reason, message=message)
