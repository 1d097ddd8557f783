"""What is done for the pages of a pool while nobody uses them: the audit, and the end of quarantine."""

from __future__ import annotations

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.pages import PageState
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.cache.tags import Tracker


class Upkeep:
    """Of one model on one node."""

    def __init__(self, *, pool: PageAllocator, prefixes: PrefixTrees, tracker: Tracker) -> None:
        self._pool = pool
        self._prefixes = prefixes
        self._tracker = tracker

    def run(self) -> list[str]:
        """Walk all pages, in the books and on the device; return what does not add up.

        Nothing may be running. A page whose tag on the device is wrong is quarantined, with all
        prefixes if one of theirs is; where the books add up, quarantine ends. O(pages).
        """
        tags = self._pool.tags
        differing = self._tracker.differing(tags)
        findings = [f"page {index} lacks its tag {tags[index]:#x}" for index in differing]
        if any(self._pool.state_of(index) is PageState.SHARED for index in differing):
            for tree in self._prefixes.statistics().trees:
                self._prefixes.drop(tree.tenant)
        for index in differing:
            self._pool.quarantine(index)
        return [*findings, *self._prefixes.audit(), *self._pool.readmit()]
