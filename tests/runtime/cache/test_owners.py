"""Owner slots: one per tenant with live pages, none of them the public one."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tenantry_runtime.cache.owners import PUBLIC, OwnerSlots

TENANTS = st.sampled_from(["acme", "globex", "initech", "umbrella"])


@given(st.lists(TENANTS, max_size=40))
def test_live_tenants_never_share_a_slot(arrivals: list[str]) -> None:
    owners = OwnerSlots()
    live: list[str] = []
    for turn, tenant in enumerate(arrivals):
        slot = owners.acquire(tenant)
        live.append(tenant)
        assert slot != PUBLIC
        if turn % 3 == 2:
            owners.release(live.pop(turn % len(live)))
        slots = {tenant: owners.acquire(tenant) for tenant in set(live)}
        for tenant in slots:
            owners.release(tenant)
        assert len(set(slots.values())) == len(slots) == owners.num_tenants


def test_a_tenant_keeps_its_slot_while_it_has_pages() -> None:
    owners = OwnerSlots()
    first = owners.acquire("acme")
    owners.acquire("globex")
    assert owners.acquire("acme") == first
    owners.release("acme")
    assert owners.acquire("acme") == first


def test_a_slot_comes_back_with_the_last_page() -> None:
    owners = OwnerSlots()
    slot = owners.acquire("acme")
    owners.release("acme")
    assert owners.num_tenants == 0
    assert owners.acquire("globex") == slot
