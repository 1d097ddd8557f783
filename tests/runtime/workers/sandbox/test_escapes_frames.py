"""Hostile workers over the whole way: engine, isolate and bindings. The neighbor is another tenant's."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest

from support.bindings import TENANT
from support.escapes.hostile_engine import THEIRS, Findings
from support.escapes.hostile_workers import WORKERS
from support.escapes.modes import MODES, findings_of, present_modes

pytestmark = [pytest.mark.isolates, pytest.mark.parametrize("mode", present_modes())]


@pytest.fixture(scope="module")
def findings_in() -> Callable[[str], Findings]:
    """Return what came of all in a mode, which runs once."""
    return cache(lambda name: findings_of(MODES[name]))


@pytest.mark.parametrize("name", WORKERS)
def test_a_hostile_worker_ends_or_gets_nothing(
    name: str, mode: str, findings_in: Callable[[str], Findings]
) -> None:
    findings = findings_in(mode)
    said = findings.said[name]

    assert re.fullmatch(WORKERS[name].expected, said, re.DOTALL), (said, findings.complaints)


@pytest.mark.parametrize("name", WORKERS)
def test_the_neighbor_answers_after_it(
    name: str, mode: str, findings_in: Callable[[str], Findings]
) -> None:
    assert findings_in(mode).neighbor_said[name] == "the neighbor"


def test_the_mode_is_what_it_says(mode: str, findings_in: Callable[[str], Findings]) -> None:
    assert findings_in(mode).level == MODES[mode].level


def test_whoever_calls_pays(mode: str, findings_in: Callable[[str], Findings]) -> None:
    assert findings_in(mode).payers <= {TENANT}


def test_nothing_of_the_neighbors_is_told(
    mode: str, findings_in: Callable[[str], Findings]
) -> None:
    findings = findings_in(mode)

    assert THEIRS not in repr(findings.said) + findings.log_text


def test_the_machine_is_not_reached(mode: str, findings_in: Callable[[str], Findings]) -> None:
    assert findings_in(mode).num_connections == 0


def test_no_descriptor_is_left(mode: str, findings_in: Callable[[str], Findings]) -> None:
    # an engine keeps some isolates, each with a stream and a handle
    assert findings_in(mode).num_descriptors_left <= 2 * 16
