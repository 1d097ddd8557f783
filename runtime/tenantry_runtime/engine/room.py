"""Who holds how much of a pool's pages and places, how much that may be, and who gives way to whom.

| a tenant's | is |
|---|---|
| pages | those in leases of its sequences, each once; what its prefix tree keeps beside them anybody may evict |
| places | its sequences that hold pages |
| guarantee | `Share.guaranteed` of the usable pages and of `max_batch`, at least one place; scaled down while those present are promised more than all |
| ceiling | `Share.ceiling` of the usable pages, at least one |
| fair share | its guarantee, or what its weight is of the weights of all present, whichever is more |
| overshare | what it holds, over its fair share |

| who lacks room | who gives it back |
|---|---|
| a tenant within its guarantee | of the tenants over theirs, the one with the greatest overshare |
| a sequence that grows, otherwise | the same, of those over their guarantee with at least the overshare of its own tenant, or that itself |
| a sequence that grows at its tenant's ceiling | its own tenant |
| anybody else | nobody: it waits |

Before any of them, whoever is in the background (`background.py`) gives its room back, to all that are
not: the youngest first. Among those in the background the table holds as it stands.

It is always the youngest of the tenant's sequences. One whose pages are on their way gives way only
where no other would; one that is handed over leaves by itself.

Nobody is preempted for ever. (1) Tokens stay: who is preempted comes back with them. So only turns
without a token could go on for ever. (2) Who grows at another's expense has a token in that turn, or
has given its room to a third in it, of whom the same is true. Who grows at its own expense comes back
by having its prompt computed, which ends with a token; it is spared by all that grow until then. So
in turns without a token only guarantees preempt. (3) They take from tenants over theirs for one
within its own, whose older sequences are not taken from again before it has been admitted a younger
one. So somebody's prompt is computed to its end. (4) Where nobody is admitted, nothing is held, and
whoever is first fits. Of one sequence: guarantees aside, it is preempted at most once per token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.pages import StepNumber
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.core import PAGE_TOKENS, Share
from tenantry_runtime.pool.messages import is_background

from .sequence import Receiving, Sequence

Resource: TypeAlias = Literal["pages", "places"]

_ROUNDING = 1e-9
"""So that 0.29 of 100 pages are 29, whatever 0.29 is in binary."""


def ceiling_tokens(share: Share, num_pages: int) -> int:
    """Return how many tokens one sequence of a tenant can have at most."""
    return share.most_pages(num_pages) * PAGE_TOKENS


class Fit(Enum):
    """Whether a sequence can be admitted."""

    FITS = "fits"
    """It holds the prefix that is known of it, and what it lacks is free."""
    AT_CEILING = "at its ceiling"
    """Its tenant may have no more, whatever is free."""
    SHORT = "short"
    """There is no room."""


@dataclass(slots=True, eq=False)
class _Presence:
    share: Share
    is_background: bool
    num_sequences: int = 0


class Room:
    """The admitted sequences of one page pool."""

    def __init__(self, *, pool: PageAllocator, prefixes: PrefixTrees, max_batch: int) -> None:
        self._pool = pool
        self._prefixes = prefixes
        self._max_batch = max_batch
        self._present: dict[str, _Presence] = {}
        self._promised = 0.0
        """Guarantees of all present."""
        self._weights = {False: 0.0, True: 0.0}
        """Of all present; in the background, of those that are there."""
        self._held: dict[str, dict[str, Sequence]] = {}
        """Admitted sequences by tenant and request."""
        self.num_admitted = 0
        self.num_background = 0
        """Those of them that are in the background."""

    @property
    def admitted(self) -> Iterator[Sequence]:
        for mine in self._held.values():
            yield from mine.values()

    @property
    def has_promises(self) -> bool:
        """Whether anybody present has a guarantee."""
        return self._promised > 0

    @property
    def has_place(self) -> bool:
        return self.num_admitted < self._max_batch

    def is_admitted(self, sequence: Sequence) -> bool:
        return sequence.request_id in self._held.get(sequence.tenant, {})

    def enter(self, tenant: str, share: Share) -> None:
        """Learn of a sequence; its tenant's share is this from here on."""
        presence = self._present.setdefault(tenant, _Presence(share, is_background(tenant)))
        presence.share = share
        presence.num_sequences += 1
        self._count()

    def leave(self, tenant: str) -> None:
        presence = self._present[tenant]
        presence.num_sequences -= 1
        if not presence.num_sequences:
            del self._present[tenant]
            self._count()

    def admit(self, sequence: Sequence) -> None:
        self._held.setdefault(sequence.tenant, {})[sequence.request_id] = sequence
        self.num_admitted += 1
        self.num_background += sequence.is_background

    def dismiss(self, sequence: Sequence) -> None:
        """Forget a sequence that gives its pages back; one that was not admitted is ignored."""
        mine = self._held.get(sequence.tenant, {})
        if mine.pop(sequence.request_id, None) is None:
            return
        self.num_admitted -= 1
        self.num_background -= sequence.is_background
        if not mine:
            del self._held[sequence.tenant]

    def fit(self, sequence: Sequence, after: StepNumber) -> Fit:
        """Let a sequence hold the prefix that is known of it, if there is room for the rest."""
        if not self.has_place:
            return Fit.SHORT
        sequence.find_prefix(self._prefixes)
        num_missing = sequence.num_missing_pages
        if not self.allows(sequence, num_missing):
            sequence.give_up_room(after)
            return Fit.AT_CEILING
        # a page of growth for each, lest somebody be preempted in the next step; alone it fits
        num_growing = 0
        if self.num_admitted:
            # who would give way is left none
            others = (s for s in self.admitted if s.is_background <= sequence.is_background)
            num_growing = sum(s.may_grow for s in (sequence, *others))
        if not self.finds(num_missing + num_growing):
            sequence.give_up_room(after)
            return Fit.SHORT
        return Fit.FITS

    def fits_at_once(self, sequence: Sequence) -> bool:
        """Whether `fit` would find room now, whatever is known of its prefix. Changes nothing.

        What the background would give back for it is room.
        """
        num_pages = sequence.num_missing_pages
        yielding = [] if sequence.is_background else self._in_background()
        staying = [s for s in self.admitted if not (yielding and s.is_background)]
        num_growing = sum(s.may_grow for s in (sequence, *staying)) if staying else 0
        num_yielded = sum(len(s.held.lease) for s in yielding)
        # it is not present yet, and its share is the latest
        ceiling = sequence.submit.share.most_pages(self._pool.num_usable)
        num_held = self.num_pages(sequence.tenant)
        return (
            len(staying) < self._max_batch
            and num_pages + num_growing - num_yielded
            <= self._pool.num_free + self._prefixes.num_evictable
            and (not num_held or num_held + num_pages <= ceiling)
        )

    def finds(self, num_pages: int) -> bool:
        """Return whether so many pages are free, or can be made so."""
        missing = num_pages - self._pool.num_free
        # what would not be enough is not evicted: somebody may still find it
        if 0 < missing <= self._prefixes.num_evictable:
            self._prefixes.evict(missing, spared=self._num_spared)
        return self._pool.num_free >= num_pages

    def claim(
        self,
        sequence: Sequence,
        *,
        preempt: Callable[[Sequence], bool],
        after: StepNumber,
    ) -> bool:
        """Let a sequence hold the prefix that is known of it, if it is promised room for the rest.

        `preempt` takes the room of who has to give it back; False: nobody's would be free by now.
        """
        tenant = sequence.tenant
        if self._num_places(tenant) >= self._guaranteed(tenant, "places"):
            return False
        if self.num_pages(tenant) >= self._guaranteed(tenant, "pages"):
            return False
        sequence.find_prefix(self._prefixes)
        num_missing = sequence.num_missing_pages
        is_promised = self._guarantees(sequence, num_missing, num_places=1)
        while is_promised and self.allows(sequence, num_missing):
            if self.has_place and self.finds(num_missing):
                return True
            lacking: Resource = "pages" if self.has_place else "places"
            victim = self._victim_for_claim(tenant, lacking, num_missing)
            if victim is None or not preempt(victim):
                break
        sequence.give_up_room(after)
        return False

    def make_way(
        self, sequence: Sequence, *, preempt: Callable[[Sequence], bool], after: StepNumber
    ) -> bool:
        """Have the background give room back until a sequence fits; False where it is at its ceiling.

        `preempt` is as in `claim`.
        """
        while (fit := self.fit(sequence, after)) is Fit.SHORT:
            victim = self._youngest_in_background()
            if victim is None or not preempt(victim):
                break
        if fit is Fit.FITS:
            # it is admitted when it has its turn
            sequence.give_up_room(after)
        return fit is not Fit.AT_CEILING

    def holders(self) -> Iterable[tuple[str, Iterable[Sequence]]]:
        """Return the tenants with admitted sequences, and those."""
        return ((tenant, mine.values()) for tenant, mine in self._held.items())

    def num_pages(self, tenant: str, owner: OwnerSlot | None = None) -> int:
        """Return what the tenant holds; `owner` is its slot, where nothing of it is admitted yet."""
        if owner is None:
            mine = self._held.get(tenant)
            if not mine:
                return 0
            owner = next(iter(mine.values())).held.owner
        return self._pool.num_private(owner) + self._prefixes.num_held(tenant)

    def allows(self, sequence: Sequence, num_more: int) -> bool:
        """Whether so many more pages are within the ceiling. A tenant's only sequence is not held up.

        A sequence that is over its ceiling alone is refused when it is submitted (`engine.lane`).
        """
        mine = self._held.get(sequence.tenant, {})
        if not mine.keys() - {sequence.request_id}:
            return True
        ceiling = self._present[sequence.tenant].share.most_pages(self._pool.num_usable)
        return self.num_pages(sequence.tenant, sequence.held.owner) + num_more <= ceiling

    def victim_for_growth(self, growing: Sequence) -> Sequence:
        """Return who gives way to a running sequence: perhaps itself."""
        tenant = growing.tenant
        if not self.allows(growing, growing.num_missing_pages):
            tenants = [tenant]
        elif not growing.is_background and (victim := self._youngest_in_background()):
            return victim
        elif self._guarantees(growing, growing.num_missing_pages):
            return self._victim_for_claim(tenant, "pages", growing.num_missing_pages) or growing
        else:
            least = self._overshare(tenant, "pages")
            others = self._over("pages", tenant)
            tenants = [x for x in others if self._overshare(x, "pages") >= least]
            tenants.append(tenant)
        for is_coming in (False, True):
            victims = [
                (self._overshare(each, "pages"), victim.arrival, victim)
                for each in tenants
                if (victim := self._youngest(each, is_coming=is_coming, growing=growing))
            ]
            # no two have arrived at once, so no two sequences are compared
            *_, chosen = max(victims)
            if chosen is not growing:
                return chosen
        return growing

    def _guarantees(self, sequence: Sequence, num_pages: int, *, num_places: int = 0) -> bool:
        """Whether so many more pages, and places if it takes any, are within the guarantee."""
        tenant = sequence.tenant
        all_pages = self.num_pages(tenant, sequence.held.owner) + num_pages
        if all_pages > self._guaranteed(tenant, "pages"):
            return False
        all_places = self._num_places(tenant) + num_places
        return not num_places or all_places <= self._guaranteed(tenant, "places")

    def _victim_for_claim(self, tenant: str, lacking: Resource, num_pages: int) -> Sequence | None:
        """Return who gives way to a tenant within its guarantee; None: nobody, or too little."""
        others = self._over(lacking, tenant)
        num_left = num_pages - self._pool.num_free - self._prefixes.num_evictable
        if lacking == "pages" and self._num_reclaimable(others) < num_left:
            return None
        if victim := self._youngest_in_background():
            return victim
        others.sort(key=lambda other: self._overshare(other, lacking), reverse=True)
        for is_coming in (False, True):
            for other in others:
                if victim := self._youngest(other, is_coming=is_coming):
                    return victim
        return None

    def _num_spared(self, tenant: str) -> int:
        """Return how many pages the tenant may keep cached before others are evicted."""
        if is_background(tenant):
            # all that is cached of it goes before anything of anybody else
            return -self._pool.num_usable
        if tenant not in self._present:
            return 0
        return max(self._guaranteed(tenant, "pages") - self.num_pages(tenant), 0)

    def _youngest(
        self, tenant: str, *, is_coming: bool, growing: Sequence | None = None
    ) -> Sequence | None:
        """`is_coming`: of those whose pages are on their way, too. Growth leaves some alone."""
        victims = [
            s
            for s in self._held.get(tenant, {}).values()
            if _can_give_way(s)
            and (is_coming or not isinstance(s.state, Receiving))
            and (growing is None or s is growing or not s.is_spared)
        ]
        return max(victims, key=lambda s: s.arrival, default=None)

    def _in_background(self) -> list[Sequence]:
        return [s for s in self.admitted if s.is_background] if self.num_background else []

    def _youngest_in_background(self) -> Sequence | None:
        return max(self._in_background(), key=lambda s: s.arrival, default=None)

    def _num_reclaimable(self, tenants: Iterable[str]) -> int:
        num_pages = 0
        for tenant in tenants:
            mine = self._held[tenant].values()
            giving = [sequence for sequence in mine if _can_give_way(sequence)]
            num_held = self.num_pages(tenant)
            if len(giving) < len(mine):
                # of those that two of them read, each counts once
                num_held = min(sum(len(s.held.lease) for s in giving), num_held)
            num_pages += num_held
        return num_pages

    def _over(self, resource: Resource, beside: str) -> list[str]:
        """Return the tenants that hold more than their guarantee."""
        return [
            tenant
            for tenant in self._held
            if tenant != beside
            and (is_background(tenant) or not is_background(beside))
            and self._amount(tenant, resource) > self._guaranteed(tenant, resource)
        ]

    def _overshare(self, tenant: str, resource: Resource) -> float:
        presence = self._present[tenant]
        weights = self._weights[presence.is_background]
        fair = self._all_of(resource) * presence.share.weight / weights
        return self._amount(tenant, resource) / max(self._guaranteed(tenant, resource), fair)

    def _guaranteed(self, tenant: str, resource: Resource) -> int:
        presence = self._present[tenant]
        guaranteed = presence.share.guaranteed
        if not guaranteed or presence.is_background:
            return 0
        amount = int(guaranteed / max(self._promised, 1.0) * self._all_of(resource) + _ROUNDING)
        return amount if resource == "pages" else max(amount, 1)

    def _amount(self, tenant: str, resource: Resource) -> int:
        return self.num_pages(tenant) if resource == "pages" else self._num_places(tenant)

    def _all_of(self, resource: Resource) -> int:
        return self._pool.num_usable if resource == "pages" else self._max_batch

    def _num_places(self, tenant: str) -> int:
        return len(self._held.get(tenant, ()))

    def _count(self) -> None:
        # summed anew: differences of floats would drift
        present = self._present.values()
        self._promised = sum(x.share.guaranteed for x in present if not x.is_background)
        for which in self._weights:
            self._weights[which] = sum(x.share.weight for x in present if x.is_background is which)


def _can_give_way(sequence: Sequence) -> bool:
    # what is handed over leaves by itself, and its other half would wait for it in vain
    return sequence.submit.part != "prefill" or sequence.is_background
