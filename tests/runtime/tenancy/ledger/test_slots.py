from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tenantry_runtime.tenancy.ledger.slots import SLOT_BYTES, Delivered, SlotReader, Slots

NOTHING = Delivered(0, 0, 0)
LARGEST = (1 << 32) - 1


def read(path: Path) -> SlotReader:
    return SlotReader(path.read_bytes())


def test_what_is_delivered_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    with Slots(path, 2) as slots:
        slot = slots.take(7)
        assert slot is not None
        slots.set_cached(slot, 64)
        slots.deliver(slot, 5, 2)
        # neither closed nor synced
        assert read(path).delivered(slot, 7) == Delivered(5, 2, 64)

        slots.deliver(slot, LARGEST, LARGEST)
        assert read(path).delivered(slot, 7) == Delivered(LARGEST, LARGEST, 64)


def test_a_slot_never_speaks_for_another_request(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    with Slots(path, 1) as slots:
        first = slots.take(1)
        assert first is not None
        slots.set_cached(first, 64)
        slots.deliver(first, 5, 2)
        assert read(path).delivered(first, 2) == NOTHING

        slots.give_back(first)
        assert slots.take(2) == first
        assert read(path).delivered(first, 1) == NOTHING
        assert read(path).delivered(first, 2) == NOTHING


def test_there_are_as_many_slots_as_asked_for(tmp_path: Path) -> None:
    with Slots(tmp_path / "slots", 3) as slots:
        taken = [slots.take(number) for number in range(1, 4)]
        assert len(set(taken)) == 3
        assert slots.take(4) is None

        slots.give_back(2)
        assert slots.take(5) == 2
    # all of it is on the disk from the start: a hole would kill who writes to it on a full one
    status = (tmp_path / "slots").stat()
    assert status.st_size == 4 * SLOT_BYTES
    assert status.st_blocks * 512 >= status.st_size


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000), st.integers(0, 1000)), max_size=40)
)
def test_each_request_has_what_was_said_of_it_last(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("slots") / "slots"
    with Slots(path, 4) as slots:
        taken = [slots.take(number + 1) for number in range(4)]
        for index, output, reasoning in said:
            slot = taken[index]
            assert slot is not None
            slots.deliver(slot, output, reasoning)
        reader = read(path)
        for index, slot in enumerate(taken):
            assert slot is not None
            counts = [(output, reasoning) for each, output, reasoning in said if each == index]
            # a request with no output has nothing
            expected = Delivered(*counts[-1], 0) if counts else NOTHING
            assert reader.delivered(slot, index + 1) == expected


@pytest.mark.parametrize("content", [b"", bytes(64), b"x" * 31])
def test_what_is_no_file_of_slots_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="no file of slots"):
        SlotReader(content)


def test_a_slot_outside_the_file_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    with Slots(path, 1):
        pass
    assert [read(path).delivered(slot, 0) for slot in (-1, 0, 2, 1000)] == [NOTHING] * 4
