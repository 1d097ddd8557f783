"""Maps of pages agree with the pool's own counts, page by page."""

from __future__ import annotations

from collections import Counter

from support.engine import MODEL, a_submit, an_engine, run_to_end
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.pool.page_map import FIRST_TENANT, NOBODY, STATES

NUM_PAGES = 16


def test_a_map_has_every_page_in_its_state_and_its_owners_color() -> None:
    loop = an_engine(num_pages=NUM_PAGES)
    for tenant in ("acme", "bolt"):
        # two full pages each stay for later prompts
        loop.submit(a_submit(tenant, prompt=[7] * (2 * PAGE_TOKENS + 1), tenant=tenant))
        run_to_end(loop)
    [pool] = loop.page_maps()

    assert (pool.model, pool.phases) == (MODEL, ("prefill", "decode"))
    assert len(pool.states) == len(pool.owners) == NUM_PAGES
    counts = Counter(STATES[code] for code in pool.states)
    [report] = loop.statistics().pools
    assert counts == Counter({state: n for state, n in report.pages.items() if n})
    owned = Counter(pool.tenants[code - FIRST_TENANT] for code in pool.owners if code != NOBODY)
    assert owned == {"acme": 2, "bolt": 2}
    for state, owner in zip(pool.states, pool.owners, strict=True):
        assert (STATES[state] == "free") == (owner == NOBODY)


def test_an_empty_pool_is_free_and_nobodys() -> None:
    [pool] = an_engine(num_pages=NUM_PAGES).page_maps()
    assert set(pool.states) == {0} and set(pool.owners) == {NOBODY}
    assert pool.tenants == ()
