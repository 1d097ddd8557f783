"""However slowly an edge reads, what it has heard adds up to what the prefix trees have."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tenantry_runtime.cache.prefix_keys import pack_keys, unpack_keys
from tenantry_runtime.pool.messages import PrefixChanges
from tenantry_runtime.pool.prefix_board import MAX_PENDING_BYTES, PrefixBoard, PrefixFeed


def a_change(
    added: list[int], removed: list[int] | None = None, *, is_whole: bool = False
) -> PrefixChanges:
    return PrefixChanges(
        model="m",
        phase="prefill",
        added=pack_keys(added),
        removed=pack_keys(removed or []),
        is_whole=is_whole,
    )


def heard(known: set[int], messages: list[PrefixChanges]) -> set[int]:
    """Do what an edge does."""
    for message in messages:
        if message.is_whole:
            known = set()
        known = (known - set(unpack_keys(message.removed))) | set(unpack_keys(message.added))
    return known


KEYS = st.lists(st.integers(0, 5), max_size=4)


@given(st.lists(st.tuples(KEYS, KEYS, st.booleans(), st.booleans())))
def test_an_edge_that_reads_now_and_then_knows_all(
    steps: list[tuple[list[int], list[int], bool, bool]],
) -> None:
    board = PrefixBoard()
    feed = PrefixFeed(board)
    known: set[int] = set()
    true: set[int] = set()
    for added, removed, is_whole, reads in steps:
        change = a_change(added, removed, is_whole=is_whole)
        board.apply(change)
        feed.add(change)
        true = ((set() if is_whole else true) - set(removed)) | set(added)
        if reads:
            known = heard(known, feed.take())
            assert known == true
            assert not feed.has_pending

    assert heard(known, feed.take()) == true


def test_an_edge_that_comes_later_gets_the_whole_set() -> None:
    board = PrefixBoard()
    board.apply(a_change([1, 2]))
    board.apply(a_change([3], [1]))

    (message,) = PrefixFeed(board).take()

    assert message.is_whole
    assert unpack_keys(message.added) == [2, 3]


def test_what_an_edge_has_not_read_is_bounded_and_then_told_anew() -> None:
    board = PrefixBoard()
    feed = PrefixFeed(board)
    for start in range(0, 200_000, 100):
        change = a_change(list(range(start, start + 100)))
        board.apply(change)
        feed.add(change)
        assert feed.num_pending_bytes <= MAX_PENDING_BYTES

    (message,) = feed.take()
    assert message.is_whole
    assert unpack_keys(message.added) == list(range(200_000))


def test_changes_that_say_nothing_are_bounded_too() -> None:
    board = PrefixBoard()
    feed = PrefixFeed(board)
    for _ in range(MAX_PENDING_BYTES // 4):
        feed.add(a_change([]))

    assert feed.num_pending_bytes <= MAX_PENDING_BYTES
