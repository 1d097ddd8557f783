"""The check of pages: what passes, what does not, and what an op then gets to see."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st

from tenantry_kernels import page_check
from tenantry_kernels.page_check import NO_SLOT
from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.device_passage import DevicePassage
from tenantry_runtime.cache.fault_word import Disagreement, disagreement, logical_page
from tenantry_runtime.cache.owners import PUBLIC, OwnerSlot
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.pages import Lease, PageIndex, PageRef, Tag, make_tag
from tenantry_runtime.cache.passage import CompiledPassage, MakePassage
from tenantry_runtime.cache.tags import PageTags
from tenantry_runtime.core import PAGE_TOKENS

NUM_PAGES = 12
ADA, BOB = OwnerSlot(1), OwnerSlot(0x8001)


class Bench:
    """A pool with its tags; a step appends twice."""

    def __init__(self, passage: MakePassage = CompiledPassage) -> None:
        self.tags = PageTags(NUM_PAGES, num_appends=2)
        self.tags._passage = passage
        self.pool = PageAllocator(NUM_PAGES, stamp=self.tags.stamp)

    def check(self, *spans: tuple[Lease, OwnerSlot, int, int]) -> CheckedBatch:
        leases, owners, starts, ends = zip(*spans, strict=True)
        return self.tags.check(
            PageBatch(leases_S=leases, owner_S=owners, start_S=starts, read_len_S=ends)
        )

    def step(self, *spans: tuple[Lease, OwnerSlot, int, int]) -> list[bool]:
        checked = self.check(*spans)
        for _ in range(2):
            checked.landing.landed(checked.write_slot_T)
        ok: list[bool] = self.tags.confirm(checked).tolist()
        return ok

    def written(self, owner: OwnerSlot, num_tokens: int) -> Lease:
        lease = self.pool.reserve(owner, -(-num_tokens // PAGE_TOKENS))
        assert self.step((lease, owner, 0, num_tokens)) == [True]
        return lease

    def found(self, lease: Lease, owner: OwnerSlot, start: int, end: int) -> Disagreement:
        checked = self.check((lease, owner, start, end))
        [word] = self.tags.faults(checked)
        return disagreement(word)


@pytest.fixture(params=[CompiledPassage, DevicePassage.of])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def test_a_sequence_passes_step_after_step(bench: Bench) -> None:
    lease = bench.written(ADA, 100)
    for end in range(101, 180):
        if end > len(lease) * PAGE_TOKENS:
            lease.extend(1)
        assert bench.step((lease, ADA, end - 1, end)) == [True]


def test_a_page_that_is_tagged_anew_behind_its_sequence_does_not_pass(bench: Bench) -> None:
    lease = bench.written(ADA, 100)
    index = PageIndex(lease.indices[0])
    bench.tags.arrays.tag_P[index] = make_tag(ADA, 99)
    assert bench.found(lease, ADA, 100, 101) is Disagreement.TAG


def test_a_page_of_another_owner_does_not_pass_whatever_its_sequence_holds(bench: Bench) -> None:
    lease = bench.written(BOB, 100)
    assert bench.found(lease, ADA, 100, 101) is Disagreement.OWNER
    assert bench.step((lease, BOB, 100, 101)) == [False], "the first answer stands"


def test_a_public_page_passes_for_everybody(bench: Bench) -> None:
    lease = bench.written(PUBLIC, 64)
    for owner in (ADA, BOB):
        assert bench.step((lease, owner, 64, 64)) == [True]


def test_whoever_still_reads_a_freed_page_does_not_pass(bench: Bench) -> None:
    lease = bench.written(ADA, 100)
    stale = Lease(bench.pool, ADA, 77)
    stale.indices, stale.tags = lease.indices[:], lease.tags[:]
    bench.pool.release(lease, after=0)
    assert Disagreement.TAG in bench.found(stale, ADA, 100, 101)


def test_pages_in_another_order_do_not_pass(bench: Bench) -> None:
    lease = bench.written(ADA, 128)
    for words in (lease.indices, lease.tags):
        words.reverse()
    assert bench.found(lease, ADA, 128, 128) is Disagreement.FILL


@pytest.mark.parametrize(("start", "end"), [(0, 64), (10, 20), (63, 65)])
def test_a_full_page_is_not_written_again(bench: Bench, start: int, end: int) -> None:
    lease = bench.written(ADA, 64)
    lease.extend(1)
    assert bench.found(lease, ADA, start, end) is Disagreement.FILL


def test_a_page_that_a_sequence_lacks_is_no_page_of_somebody(bench: Bench) -> None:
    lease = bench.written(ADA, 64)
    assert bench.found(lease, ADA, 64, 65) is Disagreement.INDEX


@pytest.mark.parametrize("index", [-1, NUM_PAGES, NUM_PAGES + 1, 1 << 40])
def test_a_page_outside_the_pool_does_not_pass(bench: Bench, index: int) -> None:
    lease = bench.written(ADA, 70)
    lease.indices[1] = index
    assert bench.found(lease, ADA, 70, 71) is Disagreement.INDEX


def test_a_sequence_that_fails_sees_no_page_and_the_others_are_as_without_it(bench: Bench) -> None:
    good, bad = bench.written(ADA, 70), bench.written(BOB, 130)
    expected = bench.check((good, ADA, 70, 72))
    bad.indices[1] = good.indices[0]
    checked = bench.check((bad, BOB, 130, 133), (good, ADA, 70, 72))
    assert checked.read_len_S == (0, 72)
    if checked.device_len_S is not None:
        assert checked.device_len_S.tolist() == [0, 72]
    assert checked.page_table_SL[0].tolist() == [NUM_PAGES] * 3
    assert checked.page_table_SL[1, :2].tolist() == expected.page_table_SL[0, :2].tolist()
    assert checked.write_slot_T[:3].tolist() == [NO_SLOT] * 3
    assert checked.write_slot_T[3:].tolist() == expected.write_slot_T.tolist()
    for _ in range(2):
        checked.landing.landed(checked.write_slot_T)
    assert bench.tags.confirm(checked).tolist() == [False, True]
    fault, none = bench.tags.faults(checked)
    assert (logical_page(fault), none) == (1, 0)


def test_a_fault_stays_until_its_sequence_is_ended(bench: Bench) -> None:
    lease = bench.written(ADA, 70)
    tag = bench.tags.arrays.tag_P[lease.indices[0]].clone()
    bench.tags.arrays.tag_P[lease.indices[0]] += 1
    assert bench.step((lease, ADA, 70, 71)) == [False]
    bench.tags.arrays.tag_P[lease.indices[0]] = tag
    heir = bench.pool.transfer(lease)
    assert bench.step((heir, ADA, 70, 71)) == [False]
    assert bench.step((bench.written(ADA, 70), ADA, 70, 71)) == [True]


@pytest.mark.parametrize("num_landed", [0, 1])
def test_a_step_of_which_an_append_has_not_landed_is_not_confirmed(
    bench: Bench, num_landed: int
) -> None:
    lease = bench.written(ADA, 70)
    checked = bench.check((lease, ADA, 70, 71))
    for _ in range(num_landed):
        checked.landing.landed(checked.write_slot_T)
    assert bench.tags.confirm(checked).tolist() == [False]


@pytest.mark.parametrize("row", [0, 40, 79])
@pytest.mark.parametrize("slot", [NO_SLOT, 5 * PAGE_TOKENS])
def test_a_chunk_of_which_a_row_is_not_in_its_place_is_not_confirmed(
    bench: Bench, row: int, slot: int
) -> None:
    lease = bench.pool.reserve(ADA, 2)
    checked = bench.check((lease, ADA, 0, 80))
    checked.write_slot_T[row] = slot
    checked.landing.landed(checked.write_slot_T, 2)
    assert bench.tags.confirm(checked).tolist() == [False]


def test_pages_before_the_first_one_wanted_may_be_missing(bench: Bench) -> None:
    lease = bench.pool.reserve(ADA, 3)
    for place in (2, 0, 1):
        pages = PageBatch(
            leases_S=(lease,),
            owner_S=(ADA,),
            start_S=(place * PAGE_TOKENS,),
            read_len_S=((place + 1) * PAGE_TOKENS,),
            first_page_S=(place,),
        )
        checked = bench.tags.check(pages)
        checked.landing.landed(checked.write_slot_T, 2)
        assert bench.tags.confirm(checked).tolist() == [True]
    assert bench.step((lease, ADA, 192, 192)) == [True]


def test_the_audit_names_pages_whose_tag_on_the_device_is_another(bench: Bench) -> None:
    lease = bench.written(ADA, 70)
    assert bench.tags.differing(bench.pool.tags) == []
    bench.tags.stamp([PageRef(PageIndex(lease.indices[1]), Tag(3))])
    assert bench.tags.differing(bench.pool.tags) == [lease.indices[1]]


def test_a_device_whose_ops_read_lengths_there_is_told_what_the_host_planned() -> None:
    tags = PageTags(NUM_PAGES, num_appends=1, has_device_lengths=True)
    pool = PageAllocator(NUM_PAGES, stamp=tags.stamp)
    lease = pool.reserve(ADA, 1)
    pages = PageBatch(leases_S=(lease,), owner_S=(BOB,), start_S=(0,), read_len_S=(9,))
    checked = tags.check(pages)
    assert checked.read_len_S == (9,)
    assert checked.device_len_S is not None
    assert checked.device_len_S.tolist() == [0]


def test_fault_words_name_page_and_disagreement() -> None:
    assert [int(kind) for kind in Disagreement] == [
        page_check.BAD_INDEX,
        page_check.BAD_TAG,
        page_check.BAD_OWNER,
        page_check.BAD_FILL,
    ]
    word = 5 << 8 | page_check.BAD_FILL | page_check.BAD_TAG
    assert logical_page(word) == 4
    assert disagreement(word) == Disagreement.FILL | Disagreement.TAG
    assert logical_page(0) is None


@given(
    spans=st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 90), st.sampled_from([ADA, BOB, PUBLIC])),
        min_size=1,
        max_size=4,
    ),
    noise=st.lists(
        st.tuples(
            st.sampled_from(["index", "expected", "tag", "fill", "fresh fill"]),
            st.integers(0, 3),
            st.integers(0, 4),
            st.integers(-1, 14),
        ),
        max_size=3,
    ),
)
def test_compiled_loops_find_what_the_reference_finds(
    spans: list[tuple[int, int, OwnerSlot]], noise: list[tuple[str, int, int, int]]
) -> None:
    outcomes = [_outcome(passage, spans, noise) for passage in (CompiledPassage, DevicePassage.of)]
    assert outcomes[0] == outcomes[1]


def _outcome(
    passage: MakePassage,
    spans: list[tuple[int, int, OwnerSlot]],
    noise: list[tuple[str, int, int, int]],
) -> list[object]:
    tags = PageTags(24, num_appends=1)
    tags._passage = passage
    pool = PageAllocator(24, stamp=tags.stamp)
    leases = [
        pool.reserve(owner, -(-(start + more) // PAGE_TOKENS)) for start, more, owner in spans
    ]
    for lease, (start, _, _) in zip(leases, spans, strict=True):
        for place in range(-(-start // PAGE_TOKENS)):
            fill = place << 32 | min(start - place * PAGE_TOKENS, PAGE_TOKENS)
            tags.arrays.fill_P[lease.indices[place]] = fill
    for what, s, place, value in noise:
        lease = leases[s % len(leases)]
        if place >= len(lease):
            continue
        match what:
            case "index":
                lease.indices[place] = value
            case "expected":
                lease.tags[place] += value
            case "tag":
                tags.arrays.tag_P[lease.indices[place]] += value
            case "fill":
                tags.arrays.fill_P[lease.indices[place]] += value
            case _:
                tags.arrays.fill_P[lease.indices[place]] = 0
    checked = tags.check(
        PageBatch(
            leases_S=leases,
            owner_S=[owner for _, _, owner in spans],
            start_S=[start for start, _, _ in spans],
            read_len_S=[start + more for start, more, _ in spans],
        )
    )
    before = tags.faults(checked)
    checked.landing.landed(checked.write_slot_T)
    tags.confirm(checked)
    tables = [
        row[: -(-read_len // PAGE_TOKENS)].tolist()
        for row, read_len in zip(checked.page_table_SL, checked.read_len_S, strict=True)
    ]
    fill_P: torch.Tensor = tags.arrays.fill_P[:-1]
    return [
        before,
        tags.faults(checked),
        checked.read_len_S,
        tables,
        checked.write_slot_T.tolist(),
        fill_P.tolist(),
    ]
