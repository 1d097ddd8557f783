"""How contexts are cut so that an H200's 132 multiprocessors all have work, in whole rounds."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tenantry_kernels.gpu.mla_tile import split_count


def busy(programs: int) -> float:
    rounds = -(-programs // 132)
    return programs / (rounds * 132)


# one long sequence; a batch that fits one round; one that fills it by itself; one just over it
@pytest.mark.parametrize(("programs", "splits"), [(1, 122), (32, 4), (132, 1), (128, 1)])
def test_known_batches_of_long_contexts(programs: int, splits: int) -> None:
    assert split_count(programs, 1000) == splits


def test_two_programs_to_a_multiprocessor_fill_it_together() -> None:
    assert split_count(32, 1000, resident=2) == 8


@given(programs=st.integers(1, 600), tiles=st.integers(0, 4000))
def test_splits_have_two_tiles_and_no_other_number_is_much_better(
    programs: int, tiles: int
) -> None:
    splits = split_count(programs, tiles)
    most = max(1, min(128, tiles // 2))
    assert 1 <= splits <= most
    assert busy(programs * splits) >= 0.95 * max(busy(programs * n) for n in range(1, most + 1))
