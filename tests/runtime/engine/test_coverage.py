"""Coverage is found by trying: what is not checked shows, whatever the configuration says."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
import torch

from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.formats import CACHE_FORMATS
from tenantry_runtime.cache.ops import ops_on
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.pages import NOBODY_TAG, PageRef
from tenantry_runtime.cache.tags import NoTags, PageTags, Tracker
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.engine.coverage import Coverage, find_coverage
from tenantry_runtime.models import Decoder, load_model

GLM = Path(str(files("tenantry_runtime"))) / "checkpoints" / "glm-5.2-nano"
HANDED_ON = {
    "prefill": {
        "prefix reuse",
        "prefix insertion",
        "eviction",
        "lost append",
        "hand-off read",
    },
    "decode": {"hand-off", "lost append"},
}


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return load_model(GLM, dtype=torch.bfloat16)


def coverage(decoder: Decoder, tracker: type[PageTags] | None, cache: str = "bf16") -> Coverage:
    def make(num_pages: int, num_appends: int) -> Tracker:
        return tracker(num_pages, num_appends=num_appends) if tracker else NoTags()

    pages = PagedCache.allocate(decoder.config, num_pages=4, cache_format=CACHE_FORMATS[cache])
    found = find_coverage(decoder, pages, make)
    for pool in (*pages.latent_N, *pages.index_keys.values()):
        assert not pool[:4].any(), "the pages are as before"
    return found


def off(found: Coverage) -> set[tuple[str, str]]:
    return {(phase, row.op) for phase, rows in found.items() for row in rows if not row.is_on}


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_with_tags_every_op_of_the_table_is_covered(decoder: Decoder, cache: str) -> None:
    found = coverage(decoder, PageTags, cache)
    assert off(found) == set()
    table = ops_on("cpu").items()
    of_table = {key.op for key, op in table if op.touches_pages and "wire" not in key.op}
    of_decode = {"decode attention", "decode step", "index scores"}
    assert {row.op for row in found["decode"]} == of_table | HANDED_ON["decode"]
    assert {row.op for row in found["prefill"]} == of_table - of_decode | HANDED_ON["prefill"]
    latent = {row.format for row in found["decode"] if row.op == "decode attention"}
    assert (latent, {row.device for row in found["decode"]}) == ({cache}, {"cpu"})


def test_without_tags_no_op_is_covered(decoder: Decoder) -> None:
    found = coverage(decoder, None)
    assert off(found) == {(phase, row.op) for phase, rows in found.items() for row in rows}


class UncheckedWrites(PageTags):
    """Keeps nobody from writing."""

    def check(self, pages: PageBatch) -> CheckedBatch:
        checked = super().check(pages)
        if not pages.leases_S:
            return checked
        [lease], [start], [end] = pages.leases_S, pages.start_S, pages.read_len_S
        for row, position in enumerate(range(start, end)):
            slot = lease.indices[position // PAGE_TOKENS] * PAGE_TOKENS + position % PAGE_TOKENS
            checked.write_slot_T[row] = slot
        return checked


class UncheckedReads(PageTags):
    """Keeps nobody from reading."""

    def check(self, pages: PageBatch) -> CheckedBatch:
        checked = super().check(pages)
        if not pages.leases_S:
            return checked
        [lease], [end] = pages.leases_S, pages.read_len_S
        return CheckedBatch(
            page_table_SL=torch.tensor([lease.indices.tolist()]),
            read_len_S=(end,),
            write_slot_T=checked.write_slot_T,
            landing=checked.landing,
        )


class UncheckedOwners(PageTags):
    """Believes every page its owner."""

    def check(self, pages: PageBatch) -> CheckedBatch:
        return super().check(
            PageBatch(
                leases_S=pages.leases_S,
                owner_S=[OwnerSlot(lease.owner) for lease in pages.leases_S],
                start_S=pages.start_S,
                read_len_S=pages.read_len_S,
                first_page_S=pages.first_page_S,
            )
        )


class UncheckedFrees(PageTags):
    """Leaves freed pages their tags."""

    def stamp(self, refs: list[PageRef]) -> None:  # type: ignore[override]  # of any sequence
        super().stamp([ref for ref in refs if ref.tag != NOBODY_TAG])


class UncheckedTail(PageTags):
    """Confirms what has not landed."""

    def confirm(self, checked: CheckedBatch) -> torch.Tensor:
        before = torch.tensor(self.faults(checked)) == 0
        super().confirm(checked)
        return before


@pytest.mark.parametrize(
    ("tracker", "expected"),
    [
        (
            UncheckedWrites,
            {
                ("prefill", "append"),
                ("prefill", "index append"),
                ("decode", "append"),
                ("decode", "index append"),
                ("decode", "decode step"),
                ("decode", "hand-off"),
            },
        ),
        (UncheckedOwners, {("prefill", "prefix reuse")}),
        (UncheckedFrees, {("prefill", "eviction")}),
        (UncheckedTail, {("prefill", "lost append"), ("decode", "lost append")}),
    ],
)
def test_an_op_without_its_check_is_reported(
    decoder: Decoder, tracker: type[PageTags], expected: set[tuple[str, str]]
) -> None:
    assert off(coverage(decoder, tracker)) == expected


def test_reads_without_their_check_are_reported(decoder: Decoder) -> None:
    missing = off(coverage(decoder, UncheckedReads))
    reads = {"read", "index read", "decode attention", "index scores", "decode step"}
    assert {op for phase, op in missing if phase == "decode"} >= reads
    assert {op for phase, op in missing if phase == "prefill"} >= {"read", "index read"}
