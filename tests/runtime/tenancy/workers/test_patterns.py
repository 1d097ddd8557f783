"""Which route a request takes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from support.secret_keys import FIRST, named_keys
from support.workers_store import ACME, GLOBEX, a_deployed, a_worker_store
from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.tenancy import Store
from tenantry_runtime.tenancy.workers import WorkerStore
from tenantry_runtime.tenancy.workers.patterns import best, hosts_for, parse

EVERYWHERE = ["a.io/*", "a.io/shop*", "a.io/shop", "*.a.io/*", "*a.io/x*", "b.a.io/*"]


@pytest.mark.parametrize(
    ("host", "path", "taken"),
    [
        ("a.io", "/", "a.io/*"),
        ("A.io", "/shop", "a.io/shop"),
        ("a.io", "/shopping", "a.io/shop*"),
        ("b.a.io", "/", "b.a.io/*"),
        ("c.a.io", "/", "*.a.io/*"),
        ("d.c.a.io", "/x", "*.a.io/*"),
        ("a.io.evil.com", "/", None),
        ("nota.io", "/x", None),
        ("io", "/", None),
    ],
)
def test_the_most_particular_pattern_is_taken(host: str, path: str, taken: str | None) -> None:
    found = best([parse(text) for text in EVERYWHERE], host, path)

    assert (found and found.text) == taken


def test_a_pattern_without_a_path_is_the_hosts_root() -> None:
    assert parse("https://Shop.A.io").text == "shop.a.io/"


@pytest.mark.parametrize(
    "text", ["", "/", "*", "*/*", "a.io/*/b", "a.io/x?y", "a..io/", "a.*.io/", "-/x\n", "a.io/ x"]
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse(text)


@given(st.text(max_size=30))
def test_a_pattern_is_read_as_it_is_written(text: str) -> None:
    try:
        pattern = parse(text)
    except InvalidInput:
        return
    assert parse(pattern.text) == pattern


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join))
def test_what_is_looked_for_is_what_matches(host: str) -> None:
    # the definition: itself, with a star before it, and below or at every parent
    assert set(hosts_for(host)) == {host, f"*{host}"} | {
        f"{star}{host.split('.', start)[start]}"
        for start in range(1, host.count(".") + 1)
        for star in ("*.", "*")
    }


@pytest.mark.asyncio
async def test_a_pattern_is_one_workers(store: Store) -> None:
    workers = await a_worker_store(store)
    await a_deployed(workers)
    await a_deployed(workers, name="other")
    await workers.triggers.set_routes(ACME, "hello", ["acme.example/*"])

    with pytest.raises(InvalidInput, match="worker 'hello'"):
        await workers.triggers.set_routes(ACME, "other", ["acme.example/*", "b.acme.example/"])

    assert await workers.triggers.routes(ACME, "other") == []
    assert await workers.by_route("acme.example", "/x") == (ACME, "hello")


@pytest.mark.asyncio
async def test_a_route_is_at_a_domain_of_its_account(store: Store) -> None:
    workers = await a_worker_store(store)
    await a_deployed(workers, account=GLOBEX)

    for refused in ("acme.example/*", "x.acme.localhost/*", "evilglobex.example/*", "*example/*"):
        with pytest.raises(InvalidInput):
            await workers.triggers.set_routes(GLOBEX, "hello", [refused])
    taken = await workers.triggers.set_routes(
        GLOBEX, "hello", ["*.globex.example/*", "a.globex.localhost/*"]
    )
    assert len(taken) == 2


@pytest.mark.asyncio
async def test_a_domain_that_is_taken_from_an_account_takes_its_routes_along(store: Store) -> None:
    workers = await a_worker_store(store)
    await a_deployed(workers)
    await workers.triggers.set_routes(ACME, "hello", ["acme.example/*", "acme.localhost/*"])

    without = WorkerStore(store.database, named_keys(FIRST), domains={GLOBEX: ["acme.example"]})

    assert await without.by_route("acme.example", "/x") is None
    assert await without.by_route("acme.localhost", "/x") == (ACME, "hello")
