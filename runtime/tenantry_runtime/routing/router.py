"""Which members serve a request. Pure: the clock's time comes in, nothing goes out.

| request | prefill member |
|---|---|
| with a session | of those within the load bound that hold most of its prompt, the first in the session's rendezvous order |
| without | of those within the bound: longest known prefix, then least prefill tokens in flight |

Within the bound is a member with no more prefill tokens in flight, of all routers as far as its reports
tell, than `load_factor` times the average, or than `load_floor_tokens`; for one that has served the conversation it is `HELD_WEIGHT`
tokens higher for each that it holds: to leave a warm cache pays only if its queue is long. There is
always such a member. So a session comes home to its first member after an absence, unless another
has its conversation by then.

A prefill member whose node has a decode member too serves the request whole. Else the decode member
is the one with most room: pages free or evictable, less what its sequences will still take, where an
answer is expected to be as long as nine of ten of that tenant and model. A session stays with the
member that holds most of its prompt, as long as there is room and the load bound allows.

A member that is unhealthy or draining, that differs from its partners, or that fails too much
(`breaker.py`) gets nothing new.

A simulator's use of it:

    router = Router(differences=lambda prefill, decode: ())
    router.join("node-1", descriptions)                     # again after a restart
    router.report("node-1", loads, is_draining=False)       # now and then
    router.learn("node-1", changes)                         # `PrefixChanges`
    placement = router.prefill(Asked(tenant=..., model=..., num_tokens=..., keys=...), now_s)
    if not placement.is_whole:
        router.decode(placement, now_s)                     # when the prompt has left its queue
    placement.reserve()                                     # the decode member has pages
    placement.advance(1)                                    # first token; then about once a page
    placement.end(now_s, is_answered=True)
    router.lengths.add(tenant, model, num_output_tokens)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from tenantry_runtime.core import PAGE_TOKENS, Phase, Share
from tenantry_runtime.errors import NodeUnavailable
from tenantry_runtime.pool.messages import MemberDescription, MemberLoad, PrefixChanges

from .breaker import Breaker
from .member import Differences, Member, MemberId, pages_of
from .placement import Asked, Placement
from .prefix_index import PrefixIndex
from .quantile import OutputLengths
from .rendezvous import ranked, session_key
from .retry import RetryBudget, RetryStatistics

LOAD_FACTOR = 1.25
"""Of the average load: the usual choice for consistent hashing with bounded loads."""

LOAD_FLOOR_TOKENS = 8192
"""A queue of so many prompt tokens, a second or two, is no reason to compute a long prefix again."""

SERVED_SHARE = 0.25
"""Of a prompt: a prefill member that holds so much of it has served its conversation; less may be
what all prompts begin with."""

HELD_WEIGHT = 8
"""Prompt tokens that may wait for each one that is held. Computing it elsewhere costs one token now, the
cache that it displaces there, and the turns after it, which find it in one place of two."""

HELD_SHARE = 0.5
"""Of a prompt: a decode member that holds so much of a session's prompt has served it before."""


class Router:
    """The members of all models, what is placed on them, and what they are known to hold."""

    def __init__(
        self,
        *,
        differences: Differences,
        lengths: OutputLengths | None = None,
        load_factor: float = LOAD_FACTOR,
        load_floor_tokens: int = LOAD_FLOOR_TOKENS,
    ) -> None:
        self.lengths = lengths or OutputLengths()
        """To be told of every answer that comes to its end."""
        self.prefixes = PrefixIndex()
        self._retries = RetryBudget()
        self._differences = differences
        self._load_factor = load_factor
        self._load_floor_tokens = load_floor_tokens
        self._members: dict[MemberId, Member] = {}
        self._by_node: dict[str, list[Member]] = {}
        self._pools: dict[tuple[str, Phase], list[Member]] = {}
        self._partners: dict[MemberId, tuple[Member, ...]] = {}
        self._handoffs: dict[tuple[MemberId, MemberId], Breaker] = {}

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(self._members.values())

    def join(self, node: str, descriptions: Iterable[MemberDescription]) -> None:
        """A node is there, or there again: what its former life said is void."""
        self._handoffs = {
            pair: breaker
            for pair, breaker in self._handoffs.items()
            if node not in (pair[0].node, pair[1].node)
        }
        joined = {MemberId(node, each.model, each.phase): each for each in descriptions}
        for gone in [known for known in self._members if known.node == node]:
            self.prefixes.forget(gone)
            if gone not in joined:
                del self._members[gone]
        for member_id, description in joined.items():
            if member_id in self._members:
                self._members[member_id].renew(description)
            else:
                self._members[member_id] = Member(member_id, description)
        self._regroup()

    def leave(self, node: str) -> None:
        """A node is gone for good; one that may come back is only not healthy."""
        self.join(node, ())

    def set_health(self, node: str, is_healthy: bool) -> None:
        for member in self._by_node.get(node, ()):
            member.is_healthy = is_healthy

    def report(self, node: str, loads: Sequence[MemberLoad], *, is_draining: bool = False) -> None:
        """Take a node's statistics."""
        for member in self._by_node.get(node, ()):
            member.is_draining = is_draining
        for load in loads:
            known = self._members.get(MemberId(node, load.model, load.phase))
            if known is not None:
                known.report(load)

    def learn(self, node: str, changes: PrefixChanges) -> None:
        """Take what a member says of its prefix trees; unknown members are ignored."""
        member_id = MemberId(node, changes.model, changes.phase)
        if member_id in self._members:
            self.prefixes.apply(member_id, changes)

    def can_serve(self, model: str, now_s: float) -> bool:
        """Say whether `prefill` would find a member."""
        return bool(self._prefill_candidates(model, now_s, ()))

    def wants_keys(self, model: str) -> bool:
        """Say whether a prompt's keys can make a difference."""
        phases: tuple[Phase, ...] = ("prefill", "decode")
        return any(len(self._pools.get((model, phase), ())) > 1 for phase in phases)

    def prefill(self, asked: Asked, now_s: float, *, avoid: Collection[MemberId] = ()) -> Placement:
        """Choose where a request is prefilled, none of those to avoid, and count it there.

        Raises `NodeUnavailable` when there is no such member, or none that it could hand over to.
        """
        candidates = self._prefill_candidates(asked.model, now_s, avoid)
        if not candidates:
            raise NodeUnavailable(asked.model)
        known = {each: self.prefixes.longest(each.id, asked.keys) for each in candidates}
        # what all prompts begin with does not count
        least = SERVED_SHARE * len(asked.keys)
        held = {each: num_pages if num_pages >= least else 0 for each, num_pages in known.items()}
        within = self._within_bound(held)
        if asked.session is not None:
            order = ranked(session_key(asked.tenant, asked.model, asked.session), within)
            # the first of those that hold most: in the session's own order where nobody holds much
            chosen = max(order, key=lambda member: held[member])
        else:
            chosen = min(within, key=lambda member: (-known[member], *self._load_of(member)))
        placement = Placement(
            asked,
            prefill=chosen,
            num_cached=PAGE_TOKENS * known[chosen],
            num_expected=self.lengths.expected(asked.tenant, asked.model, asked.max_tokens),
        )
        partner = self._beside(chosen, now_s, avoid)
        if partner is not None:
            placement.is_whole = True
            placement.choose(partner)
        if not asked.is_again:
            self._retries.earn(asked.tenant)
            self._retries.earn_at(chosen.id)
        return placement

    def decode(
        self, placement: Placement, now_s: float, *, avoid: Collection[MemberId] = ()
    ) -> MemberId:
        """Choose where a placement is decoded, none of those to avoid, and count it there.

        Raises `NodeUnavailable` when there is no such member that its prefill member pairs with.
        """
        asked = placement.asked
        candidates = self._partners_of(placement.prefill, now_s, avoid)
        if not candidates:
            raise NodeUnavailable(asked.model)
        # beside its prefill member it might wait for pages that its own prompt has
        elsewhere = [each for each in candidates if each.node != placement.prefill.node]
        candidates = elsewhere or candidates
        chosen = self._holding(candidates, placement) or max(
            candidates, key=lambda member: (member.room_pages, member.node)
        )
        pair = placement.prefill, chosen.id
        placement.choose(chosen, self._handoffs.setdefault(pair, Breaker()))
        if not asked.is_again:
            self._retries.earn_at(chosen.id)
        return chosen.id

    def context_tokens(self, placement: Placement, share: Share | None = None) -> int:
        """Return what fits all members that the placement may come to, and the tenant's pages there."""
        member = self._members.get(placement.prefill)
        partners = self._partners.get(placement.prefill, ())
        if placement.decode is not None:
            partners = tuple(each for each in partners if each.id == placement.decode)
        members = [each.description for each in ([*partners, member] if member else partners)]
        contexts = [each.context_tokens for each in members]
        if share is not None and share.ceiling < 1:
            contexts += [share.most_pages(each.num_pages) * each.page_tokens for each in members]
        return min(contexts, default=0)

    def may_retry(self, tenant: str, failed: MemberId) -> bool:
        """Pay for one more attempt at what has failed on a member; False: there have been too many."""
        return self._retries.spend(tenant, failed)

    def retry_statistics(self) -> RetryStatistics:
        return self._retries.statistics()

    def _regroup(self) -> None:
        self._by_node = {}
        self._pools = {}
        for member in self._members.values():
            self._by_node.setdefault(member.node, []).append(member)
            self._pools.setdefault((member.id.model, member.id.phase), []).append(member)
        self._partners = {
            prefill.id: tuple(
                decode
                for decode in self._pools.get((prefill.id.model, "decode"), ())
                if not self._differences(prefill.description, decode.description)
            )
            for prefill in self._members.values()
            if prefill.id.phase == "prefill"
        }

    def _prefill_candidates(
        self, model: str, now_s: float, avoid: Collection[MemberId]
    ) -> list[Member]:
        return [
            member
            for member in self._pools.get((model, "prefill"), ())
            if member.id not in avoid
            and member.is_usable(now_s)
            and any(
                self._may_pair(member.id, partner, now_s, avoid)
                for partner in self._partners[member.id]
            )
        ]

    def _partners_of(
        self, prefill: MemberId, now_s: float, avoid: Collection[MemberId]
    ) -> list[Member]:
        return [
            member
            for member in self._partners.get(prefill, ())
            if self._may_pair(prefill, member, now_s, avoid)
        ]

    def _may_pair(
        self, prefill: MemberId, decode: Member, now_s: float, avoid: Collection[MemberId]
    ) -> bool:
        handoffs = self._handoffs.get((prefill, decode.id))
        return (
            decode.id not in avoid
            and decode.is_usable(now_s)
            and (handoffs is None or handoffs.admits(now_s))
        )

    def _beside(self, prefill: Member, now_s: float, avoid: Collection[MemberId]) -> Member | None:
        partners = self._partners_of(prefill.id, now_s, avoid)
        return next((each for each in partners if each.node == prefill.node), None)

    def _bound(self, loads: Sequence[int]) -> float:
        """Return how many tokens a member may have where its fellows and it have so many."""
        return max(self._load_floor_tokens, self._load_factor * (sum(loads) / len(loads)))

    def _within_bound(self, held: Mapping[Member, int]) -> list[Member]:
        bound = self._bound([member.queued_tokens for member in held])
        return [
            member
            for member, num_pages in held.items()
            if member.queued_tokens <= bound + HELD_WEIGHT * num_pages * PAGE_TOKENS
        ]

    def _load_of(self, member: Member) -> tuple[int, int, str]:
        partner = self._members.get(MemberId(member.node, member.id.model, "decode"))
        return (
            member.queued_tokens,
            0 if partner is None else partner.decode_tokens,
            member.node,
        )

    def _holding(self, candidates: Sequence[Member], placement: Placement) -> Member | None:
        """Return the member that has served the placement's session before, if it can again."""
        asked = placement.asked
        if asked.session is None or not asked.keys:
            return None
        bound = self._bound([member.decode_tokens for member in candidates])
        needed = pages_of(placement.expected_tokens)
        held = {member: self.prefixes.longest(member.id, asked.keys) for member in candidates}
        able = [
            member
            for member, num_pages in held.items()
            if num_pages >= HELD_SHARE * len(asked.keys)
            and member.room_pages >= needed
            and member.decode_tokens <= bound
        ]
        return max(
            able, key=lambda member: (held[member], member.room_pages, member.node), default=None
        )
