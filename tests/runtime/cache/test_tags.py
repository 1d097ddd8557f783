"""From leases to the tensors of a step."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.tags import NoTags
from tenantry_runtime.core import PAGE_TOKENS

SPANS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 200)), min_size=1, max_size=6
)  # start, rows


@given(SPANS)
def test_rows_are_written_to_their_positions_in_their_sequences_pages(
    spans: list[tuple[int, int]],
) -> None:
    pool = PageAllocator(128)
    ends = [start + num_rows for start, num_rows in spans]
    leases = [pool.reserve(OwnerSlot(1), -(-end // PAGE_TOKENS)) for end in ends]

    checked = NoTags().check(
        PageBatch(
            leases_S=leases,
            owner_S=[OwnerSlot(1)] * len(spans),
            start_S=[start for start, _ in spans],
            read_len_S=ends,
        )
    )

    expected_slots = [
        lease.refs[position // PAGE_TOKENS].index * PAGE_TOKENS + position % PAGE_TOKENS
        for lease, (start, num_rows) in zip(leases, spans, strict=True)
        for position in range(start, start + num_rows)
    ]
    width = max(len(lease) for lease in leases)
    expected_table = [
        [ref.index for ref in lease.refs] + [0] * (width - len(lease)) for lease in leases
    ]
    assert checked.write_slot_T.tolist() == expected_slots
    assert checked.page_table_SL.tolist() == expected_table
    assert checked.read_len_S == tuple(ends)


def test_without_tags_every_sequence_is_confirmed() -> None:
    pool = PageAllocator(4)
    tracker = NoTags()
    leases = [pool.reserve(OwnerSlot(1), 1), pool.reserve(OwnerSlot(2), 1)]
    checked = tracker.check(
        PageBatch(
            leases_S=leases,
            owner_S=[OwnerSlot(1), OwnerSlot(2)],
            start_S=[0, 3],
            read_len_S=[2, 4],
        )
    )
    assert tracker.confirm(checked).tolist() == [True, True]
