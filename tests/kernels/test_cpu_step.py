"""The parts of a compiled decode step that nothing else computes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numba import njit

from tenantry_kernels.cpu import (
    blocks,
    fp8_pages,
    kernels,
    pages,
    shares,
    step,
    step_attention,
    step_mlp,
    step_parts,
)
from tenantry_kernels.cpu.step_attention import choose_best


@njit
def choose(score, n, chosen):  # type: ignore[no-untyped-def]
    choose_best(score, n, chosen)


def chosen_of(score: np.ndarray, num_chosen: int) -> list[int]:
    chosen = np.full(num_chosen, 99, np.int64)
    choose(score.astype(np.float32), len(score), chosen)
    return [int(position) for position in chosen]


@pytest.mark.parametrize("num_scores", [1, 7, 8, 9, 300])
def test_the_highest_scores_are_chosen_whatever_their_signs(num_scores: int) -> None:
    score = np.random.default_rng(num_scores).standard_normal(num_scores)
    best = sorted(np.argsort(-score)[:8].tolist())
    assert sorted(chosen_of(score, 8)) == [-1] * (8 - len(best)) + best


def test_of_equal_scores_so_many_are_chosen_as_there_is_room_for() -> None:
    chosen = chosen_of(np.array([1.0, 0.0, -2.0, 0.0, 0.0, 3.0]), 4)
    assert len(set(chosen)) == 4 and {0, 5} < set(chosen) and 2 not in chosen


def test_every_unit_of_a_phase_is_claimed_once() -> None:
    board = np.zeros(4 * shares.LINE, np.int64)
    assert [shares.claim(board, phase) for phase in (0, 0, 1, 0)] == [0, 1, 0, 2]


@pytest.mark.parametrize("phases", [step, step_attention, step_mlp])
def test_files_of_phases_name_the_content_of_those_they_are_made_of(phases: ModuleType) -> None:
    # numba's cache of a loop looks at its own file alone: change this name with the others
    digest = hashlib.sha256()
    for module in (blocks, kernels, fp8_pages, shares, pages, step_parts):
        assert module.__file__ is not None
        digest.update(Path(module.__file__).read_bytes())
    assert phases.BASE == digest.hexdigest()[:32]
