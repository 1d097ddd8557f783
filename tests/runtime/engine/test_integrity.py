"""A page that is not a sequence's own ends that sequence, and is told of; nobody else notices."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
import torch

from support.engine import (
    MODEL,
    Transcript,
    a_submit,
    an_engine,
    assert_nothing_is_held,
    expected_answer,
    run_to_end,
)
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.faults import FaultKind, FaultyTracker
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.pages import PageIndex, PageRef, Tag
from tenantry_runtime.cache.tags import PageTags
from tenantry_runtime.core import Phase
from tenantry_runtime.engine.build import PageParts
from tenantry_runtime.engine.drill import CHUNK_TOKENS, DRILL_PARTS, TENANTS, Drill, DrillRow
from tenantry_runtime.engine.incidents import WINDOW_S
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.messages import Submit

NUM_PAGES = 64
EITHER_WAY = pytest.mark.parametrize("runs_ahead", [False, True], ids=["in turn", "ahead"])


def submits() -> list[Submit]:
    return [
        a_submit(
            name, prompt=[n + 1] * (60 + 20 * n), max_tokens=20, tenant=name, stop_token_ids=()
        )
        for n, name in enumerate(("good", "bad", "other"))
    ]


def run_with_a_bad_page(loop: EngineLoop, place: int = 0) -> Transcript:
    return run_with_a_bad_page_and(loop, place=place)


def run_with_a_bad_page_and(loop: EngineLoop, *others: Submit, place: int = 0) -> Transcript:
    transcript = Transcript()
    for submit in (*submits(), *others):
        loop.submit(submit)
    while len(transcript.tokens["bad"]) < 3:
        transcript.read(loop.turn())
    tags = loop.lanes[-1].tracker
    [bad] = [s for s in loop.lanes[-1].scheduler.admitted if s.request_id == "bad"]
    ref = bad.held.lease.ref(place)
    assert isinstance(tags, PageTags)
    tags.arrays.tag_P[ref.index] = Tag(ref.tag + 1)
    return run_to_end(loop, transcript)


def test_a_sequence_with_a_bad_page_ends_alone_and_in_time() -> None:
    loop = an_engine()
    transcript = run_with_a_bad_page(loop)
    assert transcript.failed["bad"].reason == "cache_integrity"
    assert len(transcript.tokens["bad"]) == 3
    for submit in submits():
        told = transcript.tokens[submit.request_id]
        assert told == expected_answer(submit)[: len(told)]
    assert set(transcript.finished) == {"good", "other"}


def test_an_incident_says_what_was_found_where_and_in_which_op() -> None:
    loop = an_engine(clock_s=lambda: 1000.0)
    run_with_a_bad_page(loop)
    statistics = loop.statistics()
    assert statistics.num_incidents == 1
    [incident] = statistics.incidents
    assert (incident.model, incident.request_id, incident.tenant) == (MODEL, "bad", "bad")
    assert (incident.op, incident.found, incident.logical_page) == ("decode read", ("tag",), 0)
    assert (incident.time_s, incident.step > 0) == (1000.0, True)
    assert incident.page is not None
    assert 0 <= incident.page < 16


def test_an_incident_on_the_page_that_is_written_is_one_of_the_append() -> None:
    loop = an_engine()
    run_with_a_bad_page(loop, place=1)
    [incident] = loop.statistics().incidents
    assert (incident.op, incident.logical_page) == ("decode append", 1)


def test_the_page_is_nobodys_until_the_node_is_idle_and_audited() -> None:
    loop = an_engine(clock_s=lambda: 1000.0)
    run_with_a_bad_page(loop)
    assert loop.statistics().num_quarantined_pages == {MODEL: 1}
    assert loop.turn() == []
    assert loop.statistics().num_quarantined_pages == {MODEL: 0}
    assert loop.statistics().audit_findings == ()
    assert_nothing_is_held(loop)


@pytest.mark.parametrize("separate_pools", [False, True])
def test_a_sequence_that_needs_every_page_gets_those_that_were_quarantined(
    separate_pools: bool,
) -> None:
    loop = an_engine(separate_pools=separate_pools)
    transcript = run_with_a_bad_page_and(loop, a_submit("big", prompt=[9] * 1000, max_tokens=20))
    assert transcript.failed["bad"].reason == "cache_integrity"
    assert "big" in transcript.finished
    loop.turn()
    assert loop.audit() == []
    assert set(loop.statistics().num_quarantined_pages.values()) == {0}


def test_an_idle_node_finds_tags_that_have_changed_and_mends_them() -> None:
    loop = an_engine()
    loop.submit(a_submit(prompt=[3] * 200))
    run_to_end(loop)
    lane = loop.lanes[0]
    assert isinstance(lane.tracker, PageTags)
    [shared, *_] = lane.pool.shared_pages
    lane.tracker.stamp([PageRef(shared.ref.index, Tag(shared.ref.tag + 1))])
    lane.tracker.stamp([PageRef(PageIndex(15), Tag(77))])
    loop.turn()
    assert len(loop.statistics().audit_findings) == 2
    assert lane.tracker.differing(lane.pool.tags) == []
    assert_nothing_is_held(loop)
    again = a_submit("again", prompt=[3] * 200)
    loop.submit(again)
    assert run_to_end(loop).tokens["again"] == expected_answer(again)


def test_a_node_with_many_incidents_takes_no_work_until_they_are_few() -> None:
    now_s = [1000.0]
    loop = an_engine(max_incidents=2, clock_s=lambda: now_s[0])
    for _ in range(2):
        run_with_a_bad_page(loop)
    loop.submit(a_submit("refused"))
    assert run_to_end(loop).failed["refused"].reason == "capacity"
    now_s[0] += WINDOW_S
    loop.submit(a_submit("served"))
    assert "served" in run_to_end(loop).finished


def test_without_the_check_a_node_says_the_same() -> None:
    told = []
    for check_pages in (True, False):
        loop = an_engine(check_pages=check_pages)
        for submit in submits():
            loop.submit(submit)
        told.append(run_to_end(loop).tokens)
    assert told[0] == told[1]


def drill(
    tracker: type[FaultyTracker],
    kinds: Iterable[FaultKind],
    *,
    rounds: int,
    tenants: Sequence[str] = TENANTS,
    runs_ahead: bool = False,
) -> list[DrillRow]:
    parts = PageParts(tracker=tracker, prefixes=DRILL_PARTS.prefixes)
    loop = an_engine(num_pages=NUM_PAGES, parts=parts, max_incidents=1 << 30, runs_ahead=runs_ahead)
    return Drill(loop, loop.lanes[0], random.Random(1), tenants).rows(rounds, kinds)


@EITHER_WAY
def test_a_drill_passes_with_every_kind_of_fault(runs_ahead: bool) -> None:
    rows = drill(FaultyTracker, FaultKind, rounds=3, runs_ahead=runs_ahead)
    assert [row.kind for row in rows] == list(FaultKind)
    assert [row for row in rows if not row.is_passed] == []


@EITHER_WAY
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_drill_passes_in_either_of_two_separate_pools(phase: Phase, runs_ahead: bool) -> None:
    loop = an_engine(
        runs_ahead=runs_ahead,
        num_pages=NUM_PAGES,
        chunk_tokens=CHUNK_TOKENS,
        separate_pools=True,
        parts=DRILL_PARTS,
        max_incidents=1 << 30,
    )
    [lane] = [lane for lane in loop.lanes if phase in lane.members]
    rows = Drill(loop, lane, random.Random(1)).rows(6)
    assert [row.kind for row in rows] == list(FaultKind)
    assert [row for row in rows if not row.is_passed] == []


class WithoutTags(FaultyTracker):
    """Expects what the table says that it checks."""

    def check(self, pages: PageBatch) -> CheckedBatch:
        for lease in pages.leases_S:
            for place, index in enumerate(lease.indices):
                lease.tags[place] = int(self.arrays.tag_P[index])
        return super().check(pages)


class WithoutOwners(FaultyTracker):
    """Takes the owner from what it checks."""

    def check(self, pages: PageBatch) -> CheckedBatch:
        owners = [lease.owner for lease in pages.leases_S]
        return super().check(
            PageBatch(
                leases_S=pages.leases_S,
                owner_S=owners,
                start_S=pages.start_S,
                read_len_S=pages.read_len_S,
                first_page_S=pages.first_page_S,
            )
        )


class WithoutFill(FaultyTracker):
    """Believes that every page holds what it should."""

    def check(self, pages: PageBatch) -> CheckedBatch:
        for lease, start in zip(pages.leases_S, pages.start_S, strict=True):
            for place, index in enumerate(lease.indices):
                tokens = min(max(start - 64 * place, 0), 64)
                self.arrays.fill_P[index] = place << 32 | tokens if tokens else 0
        return super().check(pages)


class WithoutTail(FaultyTracker):
    """Believes that every append has landed."""

    def confirm(self, checked: CheckedBatch) -> torch.Tensor:
        return self.settle(checked) == 0

    def settle(self, checked: CheckedBatch) -> torch.Tensor:
        before = torch.tensor(self.faults(checked))
        super().settle(checked)
        self.arrays.holder_F.zero_()
        return before


class WithoutNobody(FaultyTracker):
    """Leaves a freed page its tag."""

    def stamp(self, refs: list[PageRef]) -> None:  # type: ignore[override]  # of any sequence
        super().stamp([ref for ref in refs if ref.tag != -1])


@EITHER_WAY
@pytest.mark.parametrize(
    ("tracker", "kind"),
    [
        (WithoutTags, FaultKind.SWAPPED_BETWEEN),
        (WithoutOwners, FaultKind.FOREIGN_PREFIX),
        (WithoutFill, FaultKind.SWAPPED_WITHIN),
        (WithoutTail, FaultKind.LOST_APPEND),
        (WithoutTail, FaultKind.WRONG_PUSH),
        (WithoutNobody, FaultKind.DOUBLE_FREE),
    ],
)
def test_a_check_without_one_of_its_parts_fails_the_drill(
    tracker: type[FaultyTracker], kind: FaultKind, runs_ahead: bool
) -> None:
    # among pages of one tenant nothing but the tag tells
    tenants = TENANTS[:1] if tracker is WithoutTags else TENANTS
    try:
        [row] = drill(tracker, [kind], rounds=6, tenants=tenants, runs_ahead=runs_ahead)
    except AssertionError:
        return  # it went so far that the books no longer add up
    assert not row.is_passed
