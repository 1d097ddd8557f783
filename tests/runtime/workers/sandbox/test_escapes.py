"""Hostile code in an isolate: every attempt is refused or contained, and the neighbor answers on.

A mode that a machine cannot run fails, unless `absent_modes.json` names it with what the probe said
there of each layer that does not work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from support.escapes.catalog import KINDS, attempts
from support.escapes.modes import MODES, absent_modes, present_modes, report_of
from support.escapes.runner import NEIGHBOR_SECRET, SECRET, Report

pytestmark = pytest.mark.isolates

PRESENT = present_modes()
ATTEMPTS = attempts()


@pytest.fixture(scope="module")
def report_in() -> Callable[[str], Report]:
    """Return the report of a mode, which runs once."""
    return cache(lambda name: report_of(MODES[name]))


@pytest.mark.parametrize("mode", PRESENT)
@pytest.mark.parametrize("name", ATTEMPTS)
def test_an_attempt_is_refused_or_contained(
    name: str, mode: str, report_in: Callable[[str], Report]
) -> None:
    outcome = report_in(mode).outcomes[name]
    expected = ATTEMPTS[name].expected_at(MODES[mode].level)

    assert expected.allows(outcome.answer, outcome.signal, outcome.was_stopped), outcome
    assert outcome.neighbor_answer == "right"


@pytest.mark.parametrize("mode", PRESENT)
def test_no_answer_has_a_secret(mode: str, report_in: Callable[[str], Report]) -> None:
    told = {
        name: outcome.answer
        for name, outcome in report_in(mode).outcomes.items()
        if outcome.answer and (SECRET in outcome.answer or NEIGHBOR_SECRET in outcome.answer)
    }

    assert not told


@pytest.mark.parametrize("mode", PRESENT)
def test_the_machine_is_as_it_was(mode: str, report_in: Callable[[str], Report]) -> None:
    report = report_in(mode)

    assert report.num_connections == 0
    assert report.changed_files == []
    assert report.num_descriptors_left == 0


@pytest.mark.parametrize("mode", PRESENT)
def test_the_mode_is_what_it_says(mode: str, report_in: Callable[[str], Report]) -> None:
    report = report_in(mode)

    assert (report.uid, report.level) == (MODES[mode].uid, MODES[mode].level)


@pytest.mark.parametrize("mode", PRESENT)
def test_the_neighbor_keeps_what_it_has(mode: str, report_in: Callable[[str], Report]) -> None:
    file = "no file" if MODES[mode].level == "no-namespace" else "its file"

    assert report_in(mode).neighbor_sees == f"GOT ({NEIGHBOR_SECRET!r}, {file!r})"


def test_a_mode_that_is_named_as_absent_cannot_run_here() -> None:
    for mode, problems in absent_modes().items():
        with pytest.raises(AssertionError) as raised:
            report_of(MODES[mode])
        assert all(problem in str(raised.value) for problem in problems)


def test_every_kind_has_attempts() -> None:
    assert all(KINDS.values())
