"""State and tag of every page of a pool, with counts that move along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from .owners import OwnerSlot
from .pages import NOBODY_TAG, OwnerPages, PageIndex, PageState, Tag, owner_of

_OWNED = (PageState.PRIVATE, PageState.SHARED, PageState.QUIESCING)


class PageLedger:
    """Every page is in exactly one state; one that is free or quarantined is nobody's."""

    def __init__(self, num_pages: int) -> None:
        self.states = [PageState.FREE] * num_pages
        self.tags = [NOBODY_TAG] * num_pages
        self._num_in = Counter({PageState.FREE: num_pages})
        self._num_owned: dict[OwnerSlot, Counter[PageState]] = {}

    def __len__(self) -> int:
        return len(self.states)

    def give(self, index: PageIndex, tag: Tag) -> None:
        """Make a free page private under a fresh tag."""
        assert self.states[index] is PageState.FREE, f"page {index} is not free"
        self.tags[index] = tag
        owner = owner_of(tag)
        if owner not in self._num_owned:
            self._num_owned[owner] = Counter()
        self.move(index, PageState.PRIVATE)

    def move(self, index: PageIndex, state: PageState) -> None:
        """Change the state of a page that stays its owner's."""
        before, self.states[index] = self.states[index], state
        self._num_in[before] -= 1
        self._num_in[state] += 1
        owned = self._num_owned[owner_of(self.tags[index])]
        owned[before] -= 1
        owned[state] += 1

    def take(self, index: PageIndex, state: PageState) -> None:
        """Make a page nobody's."""
        assert state in (PageState.FREE, PageState.QUARANTINED)
        if self.tags[index] == NOBODY_TAG:
            self._num_in[self.states[index]] -= 1
            self._num_in[state] += 1
            self.states[index] = state
            return
        owner = owner_of(self.tags[index])
        self.move(index, state)
        self.tags[index] = NOBODY_TAG
        owned = self._num_owned[owner]
        # looked up one by one: `any` takes as long as all else here
        if not (owned[PageState.PRIVATE] or owned[PageState.SHARED] or owned[PageState.QUIESCING]):
            del self._num_owned[owner]

    def num_in(self, state: PageState) -> int:
        return self._num_in[state]

    def num_owned(self, owner: OwnerSlot, state: PageState) -> int:
        owned = self._num_owned.get(owner)
        return 0 if owned is None else owned[state]

    def owners(self) -> Mapping[OwnerSlot, OwnerPages]:
        return MappingProxyType(
            {owner: _pages(counted) for owner, counted in self._num_owned.items()}
        )

    def audit(self) -> list[str]:
        """Count everything again; return what differs from the counts. O(pages)."""
        findings = [
            f"{counted} pages are {state.name}, counted {self._num_in[state]}"
            for state in PageState
            if (counted := self.states.count(state)) != self._num_in[state]
        ]
        recount: dict[OwnerSlot, Counter[PageState]] = {}
        for index, (state, tag) in enumerate(zip(self.states, self.tags, strict=True)):
            if (state in _OWNED) != (tag != NOBODY_TAG):
                findings.append(f"page {index} is {state.name} with tag {tag:#x}")
            elif state in _OWNED:
                recount.setdefault(owner_of(tag), Counter())[state] += 1
        owned = {owner: _pages(counted) for owner, counted in recount.items()}
        if owned != self.owners():
            findings.append(f"owners hold {owned}, counted {dict(self.owners())}")
        return findings

    def with_tags(self, tags: Sequence[Tag]) -> list[PageIndex]:
        """Return the pages that carry one of these tags. O(pages)."""
        wanted = set(tags) - {NOBODY_TAG}
        return [PageIndex(index) for index, tag in enumerate(self.tags) if tag in wanted]


def _pages(counted: Counter[PageState]) -> OwnerPages:
    return OwnerPages(
        num_private=counted[PageState.PRIVATE],
        num_shared=counted[PageState.SHARED],
        num_quiescing=counted[PageState.QUIESCING],
    )
