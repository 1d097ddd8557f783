"""What a tenant is told depends on how much of the cache others have, never on what it says.

Not a statistical claim: two engines that differ in another tenant's content alone do the same for
this one, turn by turn, whatever the pressure on pages.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.page_members import DECODE, PREFILL
from support.two_worlds import (
    ATTACKER,
    VICTIM,
    Request,
    a_script,
    as_it_is,
    as_its_opposite,
    what_the_attacker_sees,
)
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.cache.prefix_keys import pack_keys, page_keys
from tenantry_runtime.core import Phase
from tenantry_runtime.engine.build import PageParts
from tenantry_runtime.pool.messages import PrefixChanges, SequenceTokens
from tenantry_runtime.routing.placement import Asked
from tenantry_runtime.routing.router import Router

SEEDS = range(40)

MODEL = "m"
PROMPT = [(5 * k + k * k) % 1000 for k in range(640)]


@pytest.mark.parametrize("runs_ahead", [False, True], ids=["in turn", "ahead"])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_engine_does_the_same_whatever_others_say(seed: int, runs_ahead: bool) -> None:
    script = a_script(seed)

    seen = what_the_attacker_sees(script, as_it_is, runs_ahead=runs_ahead)

    assert seen == what_the_attacker_sees(script, as_its_opposite, runs_ahead=runs_ahead)


def test_the_scripts_are_worth_something() -> None:
    """In them the attacker hits its own cache and loses of it, and asks for what the victim has."""
    num_hits = num_misses = num_shared = 0
    for script in map(a_script, SEEDS[:20]):
        requests = [event for event in script.events if isinstance(event, Request)]
        theirs, ours = (
            {event.prompt for event in requests if event.tenant == tenant}
            for tenant in (VICTIM, ATTACKER)
        )
        num_shared += len(theirs & ours)
        cached: dict[str, int] = {}
        for _, told in what_the_attacker_sees(script, as_it_is):
            if isinstance(told, SequenceTokens):
                # its first token tells
                cached.setdefault(told.request_id, told.cached_tokens)
        num_found = sum(map(bool, cached.values()))
        num_hits += num_found
        num_misses += len(cached) - num_found - len(ours)
    assert min(num_hits, num_misses, num_shared) >= 5


def _nothing(_tenant: str) -> int:
    return 0


class ContentOrdered(PrefixTrees):
    """Evicts from the tree whose first page has the least key: an order by content."""

    def evict(self, num_pages: int, *, spared: Callable[[str], int] = _nothing) -> int:
        for tree in sorted(self.trees, key=lambda tree: min(node.key for node in tree.nodes())):
            if num_evicted := tree.evict(num_pages):
                return num_evicted
        return 0


def test_an_order_of_eviction_by_content_would_be_seen() -> None:
    parts = PageParts(prefixes=ContentOrdered)
    scripts = map(a_script, SEEDS)

    assert any(
        what_the_attacker_sees(script, as_it_is, parts)
        != what_the_attacker_sees(script, as_its_opposite, parts)
        for script in scripts
    )


def a_router(held_by: dict[str, str]) -> Router:
    """Two nodes, each of which has the prompt of one tenant."""
    router = Router(differences=lambda prefill, decode: ())
    for node, tenant in held_by.items():
        router.join(node, (PREFILL, DECODE))
        phase: Phase = "prefill"
        added = pack_keys(page_keys(tenant, PROMPT))
        router.learn(node, PrefixChanges(model=MODEL, phase=phase, added=added, removed=b""))
    return router


def placed(router: Router, tenant: str, session: str | None = None) -> str:
    asked = Asked(
        tenant=tenant,
        model=MODEL,
        num_tokens=len(PROMPT),
        keys=page_keys(tenant, PROMPT),
        session=session,
    )
    placement = router.prefill(asked, 0.0)
    placement.end(0.0, is_answered=True)
    return placement.prefill.node


@pytest.mark.parametrize("session", [None, "s", "t"])
def test_a_router_sends_nobody_to_where_another_has_the_prompt(session: str | None) -> None:
    there = {"node-1": VICTIM, "node-2": "nobody"}
    elsewhere = {"node-1": "nobody", "node-2": VICTIM}

    found = {placed(a_router(held_by), ATTACKER, session) for held_by in (there, elsewhere)}

    assert len(found) == 1
    assert placed(a_router(there), VICTIM, session) == "node-1"
    assert placed(a_router(elsewhere), VICTIM, session) == "node-2"
