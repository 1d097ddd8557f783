from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tenantry_runtime.cache.prefix_keys import pack_keys, page_keys
from tenantry_runtime.pool.messages import PrefixChanges
from tenantry_runtime.routing.prefix_index import PrefixIndex


def changes(
    added: list[int] | None = None, removed: list[int] | None = None, *, is_whole: bool = False
) -> PrefixChanges:
    return PrefixChanges(
        model="m",
        phase="prefill",
        added=pack_keys(added or []),
        removed=pack_keys(removed or []),
        is_whole=is_whole,
    )


# prompts over two symbols, a page of each: many share their first pages
pages = st.lists(st.integers(0, 1), max_size=6).map(
    lambda symbols: [symbol for symbol in symbols for _ in range(64)]
)


@given(st.lists(pages, max_size=6), pages)
def test_the_longest_known_prefix_is_that_of_a_comparison(
    held: list[list[int]], prompt: list[int]
) -> None:
    index = PrefixIndex()
    for token_ids in held:
        index.apply("member", changes(page_keys("tenant", token_ids)))
    longest = max(
        (
            num_pages
            for token_ids in held
            for num_pages in range(len(prompt) // 64 + 1)
            if token_ids[: 64 * num_pages] == prompt[: 64 * num_pages]
        ),
        default=0,
    )

    assert index.longest("member", page_keys("tenant", prompt)) == longest
    assert index.longest("member", page_keys("other tenant", prompt)) == 0
    assert index.longest("other member", page_keys("tenant", prompt)) == 0


def test_removed_pages_are_known_no_more() -> None:
    index = PrefixIndex()
    index.apply("member", changes([1, 2, 3]))

    index.apply("member", changes([], [3]))

    assert index.longest("member", [1, 2, 3]) == 2
    assert index.num_pages("member") == 2


def test_a_whole_report_replaces_what_was_known() -> None:
    index = PrefixIndex()
    index.apply("member", changes([1, 2, 3]))

    index.apply("member", changes([7], is_whole=True))

    assert index.longest("member", [1, 2, 3]) == 0
    assert index.longest("member", [7]) == 1


def test_a_forgotten_member_holds_nothing() -> None:
    index = PrefixIndex()
    index.apply("member", changes([1]))

    index.forget("member")
    index.forget("member")

    assert index.longest("member", [1]) == 0


def test_a_member_that_claims_too_much_is_not_believed() -> None:
    index = PrefixIndex(max_keys=3)

    index.apply("member", changes([1, 2, 3, 4]))

    assert index.num_pages("member") == 0


def test_a_member_that_claimed_too_much_is_believed_again_when_it_says_all_there_is() -> None:
    index = PrefixIndex(max_keys=3)
    index.apply("member", changes([1, 2, 3, 4]))

    index.apply("member", changes([5], [4]))
    assert index.longest("member", [5]) == 0

    index.apply("member", changes([5], is_whole=True))
    index.apply("member", changes([6]))
    assert index.longest("member", [5, 6]) == 2


def test_half_a_key_is_refused() -> None:
    with pytest.raises(ValueError):
        PrefixIndex().apply(
            "member", PrefixChanges(model="m", phase="prefill", added=b"1234", removed=b"")
        )
