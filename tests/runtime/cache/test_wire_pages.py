"""A page on the wire is in its receiver's format, carries only what is the sequence's, and is verified."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from itertools import count
from pathlib import Path

import pytest
import torch

from tenantry_kernels.page_digest import bind, page_digests
from tenantry_runtime.cache.allocator import PageAllocator
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.cache.ops import page_ops
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.cache.pages import Lease, PageRef, Tag
from tenantry_runtime.cache.reservation import PushedPage, Reservation
from tenantry_runtime.cache.tags import NoTags, PageTags
from tenantry_runtime.cache.wire import ArrivedPage, Departure, WirePage
from tenantry_runtime.cache.wire_pages import WirePages
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models.config import ModelConfig
from tenantry_runtime.models.loader import load_config

CHECKPOINTS = Path(str(files("tenantry_runtime"))) / "checkpoints"
OWNER = OwnerSlot(3)
PAIRS: list[tuple[CacheName, CacheName]] = [
    ("bf16", "bf16"),
    ("bf16", "fp8"),
    ("float32", "float32"),
    ("float32", "fp8"),
    ("fp8", "fp8"),
]
FAMILIES = pytest.mark.parametrize("name", ["kimi-k2.6-nano", "glm-5.2-nano"])


class Side:
    """A member's pages, filled at random as a step would."""

    def __init__(self, config: ModelConfig, cache: CacheName, num_pages: int = 8) -> None:
        self.cache = PagedCache.allocate(
            config, num_pages=num_pages, cache_format=SERVED_FORMATS[cache]
        )
        self.tags = PageTags(num_pages, num_appends=self.cache.num_appends)
        self.pool = PageAllocator(num_pages, stamp=self.tags.stamp, handoffs=count(40))
        self.wire = WirePages(self.cache, self.tags)

    def written(self, num_tokens: int, seed: int = 0) -> Lease:
        lease = self.pool.reserve(OWNER, -(-num_tokens // PAGE_TOKENS))
        batch = PageBatch(
            leases_S=(lease,), owner_S=(OWNER,), start_S=(0,), read_len_S=(num_tokens,)
        )
        checked = self.tags.check(batch)
        self.append(checked, num_tokens, seed)
        assert self.tags.confirm(checked).tolist() == [True]
        return lease

    def append(self, checked: CheckedBatch, num_tokens: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        cache = self.cache
        latent = page_ops(cache.cache_format.latent, cache.device)
        index = page_ops(cache.cache_format.index, cache.device)
        with torch.inference_mode():
            for pool in cache.latent_N:
                rows = torch.randn(num_tokens, 96, generator=generator).bfloat16().float()
                latent.append(pool, checked.write_slot_T, rows)
            for _, pool in sorted(cache.index_keys.items()):
                rows = torch.randn(num_tokens, 48, generator=generator).bfloat16().float()
                index.append(pool, checked.write_slot_T, rows)
        checked.landing.landed(checked.write_slot_T, cache.num_appends)

    def rows(self, lease: Lease, num_tokens: int) -> list[torch.Tensor]:
        slot_T = torch.tensor(
            [
                lease.indices[position // PAGE_TOKENS] * PAGE_TOKENS + position % PAGE_TOKENS
                for position in range(num_tokens)
            ]
        )
        form, device = self.cache.cache_format, self.cache.device
        with torch.inference_mode():
            latents = [page_ops(form.latent, device).read(p, slot_T) for p in self.cache.latent_N]
            keys = [
                page_ops(form.index, device).read(pool, slot_T)
                for _, pool in sorted(self.cache.index_keys.items())
            ]
        return [*latents, *keys]


def config_of(name: str) -> ModelConfig:
    return load_config(CHECKPOINTS / name)


def arrivals(
    side: Side, reservation: Reservation, pages: list[WirePage]
) -> tuple[list[ArrivedPage], list[PushedPage]]:
    number = reservation.handoff.number
    refs = [reservation.lease.ref(page.logical_page) for page in pages]
    arrived = [
        ArrivedPage(
            number,
            page.logical_page,
            ref.tag,
            side.wire.bind(page.digest, number, page.logical_page, ref.tag),
            page.data,
        )
        for page, ref in zip(pages, refs, strict=True)
    ]
    pushed = [
        PushedPage(
            handoff=reservation.handoff,
            logical_page=page.logical_page,
            ref=ref,
            num_tokens=page.num_tokens,
        )
        for page, ref in zip(pages, refs, strict=True)
    ]
    return arrived, pushed


@FAMILIES
@pytest.mark.parametrize(("kept", "wanted"), PAIRS)
@pytest.mark.parametrize("num_tokens", [1, 64, 100, 192])
def test_a_receiver_holds_what_it_would_have_written_itself(
    name: str, kept: CacheName, wanted: CacheName, num_tokens: int
) -> None:
    config = config_of(name)
    sender, receiver, itself = Side(config, kept), Side(config, wanted), Side(config, wanted)
    pages, fault = sender.wire.to_wire(
        Departure(sender.written(num_tokens), OWNER, 0, num_tokens), wanted
    )
    assert fault == 0
    assert {page.data.nbytes for page in pages} == {receiver.wire.page_bytes}
    assert sender.wire.sent_bytes(wanted) == receiver.wire.page_bytes
    reservation = Reservation.fresh(receiver.pool, OWNER, len(pages))
    arrived, pushed = arrivals(receiver, reservation, pages)
    loaded = receiver.wire.load(arrived)
    assert receiver.wire.verify(loaded) == [True] * len(pages)
    outcomes = receiver.wire.from_wire(reservation.accept(pushed), loaded)
    # one after the other, they are one run
    assert [tuple(outcome) for outcome in outcomes] == [(True, 0)]
    assert receiver.wire.fault(reservation.lease, OWNER, num_tokens) == 0
    expected = itself.rows(itself.written(num_tokens), num_tokens)
    got = receiver.rows(reservation.lease, num_tokens)
    assert len(got) == len(expected) == receiver.cache.num_appends
    for mine, theirs in zip(got, expected, strict=True):
        assert torch.equal(mine, theirs)


@FAMILIES
@pytest.mark.parametrize(("kept", "wanted"), PAIRS)
def test_rows_behind_the_last_token_do_not_leave(
    name: str, kept: CacheName, wanted: CacheName
) -> None:
    """They may still hold what another tenant left in the page."""
    config = config_of(name)
    told = []
    for earlier in (False, True):
        side = Side(config, kept, num_pages=1)
        if earlier:
            side.pool.release(side.written(PAGE_TOKENS, seed=9), after=0)
        [page], _ = side.wire.to_wire(Departure(side.written(20), OWNER, 0, 20), wanted)
        told.append(bytes(page.data))
    assert told[0] == told[1]


@pytest.mark.parametrize("first", [1, 2])
def test_only_the_pages_that_are_asked_for_leave(first: int) -> None:
    side = Side(config_of("kimi-k2.6-nano"), "bf16")
    lease = side.written(170)
    every, _ = side.wire.to_wire(Departure(lease, OWNER, 0, 170), "fp8")
    some, _ = side.wire.to_wire(Departure(lease, OWNER, first, 170), "fp8")
    assert some == every[first:]
    assert [page.num_tokens for page in every] == [64, 64, 42]


def test_of_a_page_that_is_not_the_sequences_own_nothing_leaves() -> None:
    side = Side(config_of("glm-5.2-nano"), "bf16")
    lease = side.written(100)
    assert side.wire.to_wire(Departure(lease, OwnerSlot(4), 0, 100), "fp8")[0] == []
    another = side.written(100, seed=1)
    ref = another.ref(1)
    side.tags.stamp([PageRef(ref.index, Tag(ref.tag + 1))])
    pages, fault = side.wire.to_wire(Departure(another, OWNER, 0, 100), "fp8")
    assert (pages, fault >> 8) == ([], 2)
    assert side.wire.fault(another, OWNER, 100) == fault


def test_the_digest_is_of_the_bytes_and_of_where_they_belong() -> None:
    side = Side(config_of("glm-5.2-nano"), "fp8")
    [page], _ = side.wire.to_wire(Departure(side.written(64), OWNER, 0, 64), "fp8")
    digest = page_digests(torch.frombuffer(bytearray(page.data), dtype=torch.uint8)[None])[0]
    assert page.digest == int(digest)
    assert side.wire.bind(page.digest, 5, 6, Tag(7)) == bind(int(digest), 5, 6, 0, 7)
    good = ArrivedPage(5, 6, Tag(7), bind(int(digest), 5, 6, 0, 7), page.data)
    flipped = bytearray(page.data)
    flipped[1000] ^= 4
    wrong = [
        replace(good, handoff=4),
        replace(good, logical_page=5),
        replace(good, tag=Tag(8)),
        replace(good, digest=good.digest + 1),
        replace(good, data=memoryview(flipped)),
    ]
    assert side.wire.verify(side.wire.load([good, *wrong])) == [True, *[False] * len(wrong)]


@pytest.mark.parametrize(
    ("places", "is_written", "ok"),
    # of a run all pages are written, or none
    [((0, 1), False, [False]), ((0, 2), True, [True, False])],
    ids=["within a run", "beside a run"],
)
def test_a_page_under_another_tag_is_not_written(
    places: tuple[int, int], is_written: bool, ok: list[bool]
) -> None:
    config = config_of("glm-5.2-nano")
    sender, receiver = Side(config, "bf16"), Side(config, "fp8")
    pages, _ = sender.wire.to_wire(Departure(sender.written(192), OWNER, 0, 192), "fp8")
    reservation = Reservation.fresh(receiver.pool, OWNER, 3)
    arrived, pushed = arrivals(receiver, reservation, [pages[place] for place in places])
    good, bad = map(reservation.lease.ref, places)
    receiver.tags.stamp([PageRef(bad.index, Tag(bad.tag + 1))])
    outcomes = receiver.wire.from_wire(reservation.accept(pushed), receiver.wire.load(arrived))
    assert [outcome.is_ok for outcome in outcomes] == ok
    for pool in (*receiver.cache.latent_N, *receiver.cache.index_keys.values()):
        assert bool(pool[good.index].any()) == is_written
        assert not pool[bad.index].any()


def test_pages_are_written_between_the_check_and_its_confirmation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = config_of("glm-5.2-nano")
    sender, receiver = Side(config, "bf16"), Side(config, "fp8")
    pages, _ = sender.wire.to_wire(Departure(sender.written(128), OWNER, 0, 128), "fp8")
    reservation = Reservation.fresh(receiver.pool, OWNER, 2)
    arrived, pushed = arrivals(receiver, reservation, pages)
    first = reservation.lease.indices[0]
    seen: list[tuple[str, bool]] = []

    def is_written() -> bool:
        return bool(receiver.cache.latent_N[0][first].any())

    check, confirm = receiver.tags.check, receiver.tags.confirm

    def checks(batch: PageBatch) -> CheckedBatch:
        seen.append(("check", is_written()))
        return check(batch)

    def confirms(checked: CheckedBatch) -> torch.Tensor:
        seen.append(("confirm", is_written()))
        return confirm(checked)

    monkeypatch.setattr(receiver.tags, "check", checks)
    monkeypatch.setattr(receiver.tags, "confirm", confirms)
    loaded = receiver.wire.load(arrived)
    assert receiver.wire.verify(loaded) == [True, True]
    assert (seen, is_written()) == ([], False)
    receiver.wire.from_wire(reservation.accept(pushed), loaded)
    assert seen == [("check", False), ("confirm", True)]


def test_a_member_without_the_check_hands_over_all_the_same() -> None:
    config = config_of("kimi-k2.6-nano")
    sender, receiver = Side(config, "bf16"), Side(config, "fp8")
    lease = sender.written(64)
    unchecked = WirePages(sender.cache, NoTags()), WirePages(receiver.cache, NoTags())
    pages, _ = unchecked[0].to_wire(Departure(lease, OWNER, 0, 64), "fp8")
    reservation = Reservation.fresh(receiver.pool, OWNER, 1)
    arrived, pushed = arrivals(receiver, reservation, pages)
    [outcome] = unchecked[1].from_wire(reservation.accept(pushed), unchecked[1].load(arrived))
    assert outcome.is_ok


def test_pages_of_one_layout_are_named_alike() -> None:
    layouts = {
        (name, cache): Side(config_of(name), cache).wire.layout
        for name in ("kimi-k2.6-nano", "glm-5.2-nano")
        for cache in ("bf16", "fp8")
    }
    assert layouts == {
        ("kimi-k2.6-nano", "bf16"): "6xbf16[64,96]",
        ("kimi-k2.6-nano", "fp8"): "6xfp8[64,96]",
        ("glm-5.2-nano", "bf16"): "6xbf16[64,96]+4xfp8[64,48]",
        ("glm-5.2-nano", "fp8"): "6xfp8[64,96]+4xfp8[64,48]",
    }
