"""The parts of a compiled decode step that nothing else computes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tenantry_kernels.cpu import (
    blocks,
    fp8_pages,
    index_choice,
    kernels,
    pages,
    shares,
    step,
    step_attention,
    step_mlp,
    step_parts,
)


def test_every_unit_of_a_phase_is_claimed_once() -> None:
    board = np.zeros(4 * shares.LINE, np.int64)
    assert [shares.claim(board, phase) for phase in (0, 0, 1, 0)] == [0, 1, 0, 2]


@pytest.mark.parametrize("phases", [step, step_attention, step_mlp])
def test_files_of_phases_name_the_content_of_those_they_are_made_of(phases: ModuleType) -> None:
    # numba's cache of a loop looks at its own file alone: change this name with the others
    digest = hashlib.sha256()
    for module in (blocks, kernels, index_choice, fp8_pages, shares, pages, step_parts):
        assert module.__file__ is not None
        digest.update(Path(module.__file__).read_bytes())
    assert phases.BASE == digest.hexdigest()[:32]
