"""Keys of pages: what routing knows a tenant's pages by, the same on every machine."""

from __future__ import annotations

import struct
from hashlib import blake2b

import pytest

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.owners import OwnerSlots
from tenantry_runtime.cache.prefix import PrefixTrees
from tenantry_runtime.cache.prefix_journal import KeyChanges, PrefixJournal
from tenantry_runtime.cache.prefix_keys import pack_keys, page_keys, root_key, unpack_keys
from tenantry_runtime.core import PAGE_TOKENS

PROMPT = [(7 * k + k * k) % 151_000 for k in range(200)]


def by_hand(tenant: str, token_ids: list[int]) -> list[int]:
    key = blake2b(tenant.encode(), digest_size=8, person=b"tenant").digest()
    keys = []
    for page in range(len(token_ids) // 64):
        tokens = struct.pack("<64I", *token_ids[64 * page : 64 * page + 64])
        key = blake2b(key + tokens, digest_size=8, person=b"page").digest()
        keys.append(struct.unpack("<Q", key)[0])
    return keys


@pytest.mark.parametrize("num_tokens", [0, 1, 63, 64, 65, 128, 200])
def test_each_full_page_has_the_key_of_all_tokens_up_to_its_end(num_tokens: int) -> None:
    assert page_keys("acme", PROMPT[:num_tokens]) == by_hand("acme", PROMPT[:num_tokens])


def test_two_tenants_share_no_key() -> None:
    assert not set(page_keys("acme", PROMPT)) & set(page_keys("globex", PROMPT))


def test_no_name_stands_for_another_tenants_page() -> None:
    """A name that spells out what a page's key is the hash of: a root, and tokens below 128."""
    tokens = PROMPT[:PAGE_TOKENS]
    tokens = [token % 128 for token in tokens]
    victim, name = next(
        (victim, spelled)
        for victim in map(str, range(100_000))
        if (spelled := _spelled(root_key(victim), tokens)) is not None
    )

    assert root_key(name) != page_keys(victim, tokens)[0]


def test_a_page_is_known_by_what_comes_before_it_too() -> None:
    moved = PROMPT[PAGE_TOKENS:]
    assert page_keys("acme", PROMPT)[1] != page_keys("acme", moved)[0]


def test_keys_travel_as_little_endian_words() -> None:
    keys = [1, 2**64 - 1, 1 << 40]
    assert pack_keys(keys) == struct.pack("<3Q", *keys)
    assert unpack_keys(pack_keys(keys)) == keys
    with pytest.raises(ValueError):
        unpack_keys(b"123")


class Shelf:
    """Prompts of tenants kept in trees, as prefill would."""

    def __init__(self, num_pages: int = 16) -> None:
        self.pool = PageAllocator(num_pages)
        self.owners = OwnerSlots()
        self.trees = PrefixTrees(pool=self.pool, owners=self.owners)
        self.known: set[int] = set()

    def keep(self, tenant: str, token_ids: list[int]) -> None:
        owner = self.owners.acquire(tenant)
        lease, _ = self.trees.match(tenant, owner, token_ids)
        lease.extend(-(-len(token_ids) // PAGE_TOKENS) - len(lease))
        self.trees.insert(tenant, lease, token_ids, num_verified=len(token_ids))
        self.pool.release(lease, after=0)
        self.owners.release(tenant)

    def listen(self, max_keys: int = 1000) -> KeyChanges:
        changes = self.trees.journal.take(max_keys)
        assert not self.known & set(changes.added)
        assert self.known >= set(changes.removed)
        self.known = (self.known | set(changes.added)) - set(changes.removed)
        return changes


def test_what_comes_into_a_tree_is_told_once() -> None:
    shelf = Shelf()
    shelf.keep("acme", PROMPT)
    assert shelf.listen() == KeyChanges(by_hand("acme", PROMPT), [])
    shelf.keep("acme", [*PROMPT[:130], 5])
    assert shelf.listen() == KeyChanges([], [])
    assert set(shelf.trees.keys()) == shelf.known


def test_what_is_evicted_or_dropped_is_told() -> None:
    shelf = Shelf()
    shelf.keep("acme", PROMPT)
    shelf.keep("globex", PROMPT)
    shelf.listen()
    shelf.trees.evict(1)
    [gone] = shelf.listen().removed
    assert gone in {by_hand("acme", PROMPT)[-1], by_hand("globex", PROMPT)[-1]}
    shelf.trees.drop("acme")
    shelf.listen()
    assert shelf.known == set(shelf.trees.keys()) <= set(by_hand("globex", PROMPT))


def test_a_tree_that_is_dropped_while_it_is_read_is_gone_at_once_and_once() -> None:
    shelf = Shelf()
    shelf.keep("acme", PROMPT)
    owner = shelf.owners.acquire("acme")
    lease, _ = shelf.trees.match("acme", owner, PROMPT)
    shelf.listen()
    shelf.trees.drop("acme")
    assert len(shelf.listen().removed) == 3
    shelf.keep("acme", PROMPT)
    shelf.pool.release(lease, after=0)
    assert shelf.listen() == KeyChanges(by_hand("acme", PROMPT), [])


def test_what_comes_and_goes_in_between_is_not_told() -> None:
    shelf = Shelf()
    shelf.keep("acme", PROMPT)
    shelf.trees.evict(16)
    assert not shelf.trees.journal
    assert shelf.listen() == KeyChanges([], [])


def test_no_message_has_more_keys_than_it_may() -> None:
    journal = PrefixJournal()
    for key in range(5):
        journal.add(key)
    first, rest = journal.take(3), journal.take(3)
    assert (first, rest) == (KeyChanges([0, 1, 2], []), KeyChanges([3, 4], []))


def _spelled(key: int, tokens: list[int]) -> str | None:
    """Return key and tokens as a text, if they are one."""
    try:
        return (key.to_bytes(8, "little") + struct.pack("<64I", *tokens)).decode()
    except UnicodeDecodeError:
        return None
