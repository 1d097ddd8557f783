"""The port through shared memory and gRPC keeps what every port promises, and loses no slot."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.page_members import PREFILL
from support.port_contract import PAGE_BYTES, Joined, PortContract, a_page, a_target
from support.shared_pair import SharedPair
from tenantry_runtime.pool.page_messages import PageReport, PushPage, SlotsSent
from tenantry_runtime.pool.shared_pages import (
    BUDGET_BYTES,
    MAX_SLOTS,
    MIN_SLOTS,
    SlotLayout,
    create_pages_file,
    set_size,
)
from tenantry_runtime.pool.shared_port import SharedMemoryPort


class TestSharedMemoryPort(PortContract):
    @pytest.fixture(params=[False, True], ids=["in frames", "lent"])
    def joined(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Joined]:
        pair = SharedPair(tmp_path, lends=request.param)
        try:
            yield pair
        finally:
            pair.close()


@pytest.fixture
def pages_fd() -> Iterator[int]:
    fd = create_pages_file()
    yield fd
    os.close(fd)


def a_port(fd: int) -> tuple[SharedMemoryPort, list[PageReport]]:
    reports: list[PageReport] = []
    port = SharedMemoryPort(fd, reports.append)
    port.allocate(PAGE_BYTES)
    return port, reports


def test_a_hand_off_that_stands_still_leaves_room_to_others(pages_fd: int) -> None:
    port, reports = a_port(pages_fd)
    stuck, other = (port.open(a_target(number), "a", PREFILL) for number in (1, 2))
    page = 0
    while port.room_for(stuck):
        header, content = a_page(page)
        port.push(stuck, header, memoryview(content))
        page += 1

    assert page == port.room == MAX_SLOTS // 2
    assert port.room_for(other) == MAX_SLOTS // 4
    (first, *_) = [report for report in reports if isinstance(report, PushPage)]
    port.accept(SlotsSent(slots=(first.slot,)))
    assert port.room_for(stuck) == 1


def test_a_slot_that_comes_back_twice_is_a_mistake(pages_fd: int) -> None:
    port, reports = a_port(pages_fd)
    header, content = a_page(0)
    port.push(port.open(a_target(), "a", PREFILL), header, memoryview(content))
    pushed = reports[-1]
    assert isinstance(pushed, PushPage)
    port.accept(SlotsSent(slots=(pushed.slot,)))

    with pytest.raises(KeyError):
        port.accept(SlotsSent(slots=(pushed.slot,)))


@pytest.mark.parametrize("page_bytes", [1, 4096, 37_120 * 2, 2 << 20, 6 << 20, 100 << 20])
def test_slots_hold_a_page_and_stay_within_the_budget(page_bytes: int) -> None:
    layout = SlotLayout.of(page_bytes)

    assert layout.slot_bytes >= page_bytes
    assert MIN_SLOTS <= layout.num_slots <= MAX_SLOTS
    assert layout.num_slots == MIN_SLOTS or layout.num_bytes <= 2 * BUDGET_BYTES


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files are sealed on Linux alone")
def test_nobody_can_take_the_memory_from_under_the_other(pages_fd: int) -> None:
    set_size(pages_fd, SlotLayout.of(PAGE_BYTES))

    with pytest.raises(PermissionError):
        os.ftruncate(pages_fd, 0)
    assert fcntl.fcntl(pages_fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
