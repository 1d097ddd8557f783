"""Levels of what layers work, users that are nobody else's, and limits that make sense."""

from __future__ import annotations

import pytest

from tenantry_runtime.workers.sandbox import (
    IsolateRlimits,
    LayerReport,
    Layers,
    Level,
    SandboxTooWeak,
    UidRange,
    layers_of,
)
from tenantry_runtime.workers.sandbox.probe import missing_for
from tenantry_runtime.workers.sandbox.users import usable_users

ALL = {
    "namespaces": "",
    "user-namespace": "",
    "own-users": "",
    "no-new-privileges": "",
    "landlock": "version 7",
    "system-call-filter": "300 instructions",
    "limits": "",
    "process-handles": "",
}


def layers(*missing: str, landlock: int = 7) -> Layers:
    details = {**ALL, "landlock": f"version {landlock}"}
    return layers_of(
        [
            LayerReport(
                name=name, works=name not in missing, detail="denied" if name in missing else detail
            )
            for name, detail in details.items()
        ]
    )


def test_all_layers_make_the_best_level() -> None:
    assert layers().level is Level.FULL


def test_without_privileges_a_user_namespace_serves() -> None:
    assert layers("namespaces", "own-users").level is Level.USER_NAMESPACE
    assert layers("own-users").level is Level.USER_NAMESPACE


def test_without_namespaces_landlock_has_to_hold_alone() -> None:
    without = ("namespaces", "user-namespace")

    assert layers(*without).level is Level.NO_NAMESPACE
    assert layers(*without, landlock=3).level is Level.NO_NAMESPACE
    assert layers(*without, landlock=2).level is Level.NONE


@pytest.mark.parametrize(
    "layer",
    ["landlock", "system-call-filter", "limits", "no-new-privileges", "process-handles"],
)
def test_no_level_does_without_what_all_need(layer: str) -> None:
    assert layers(layer).level is Level.NONE


def test_a_level_reaches_those_below_it() -> None:
    order = [Level.NONE, Level.NO_NAMESPACE, Level.USER_NAMESPACE, Level.FULL]

    for index, level in enumerate(order):
        assert [level.reaches(floor) for floor in order] == [
            position <= index for position in range(len(order))
        ]


def test_what_is_missing_is_named_with_its_reason() -> None:
    found = layers("namespaces", "user-namespace", "landlock")
    error = SandboxTooWeak(found.level, Level.FULL, missing_for(Level.FULL, found))

    assert "namespaces: denied; landlock: denied" in str(error)
    assert "user-namespace: denied" not in str(error)
    assert "--unsafe-no-sandbox" in str(error)


def test_no_two_that_live_are_one_user() -> None:
    uids = UidRange(first=1000, count=3)

    assert [uids.take() for _ in range(3)] == [1000, 1001, 1002]
    with pytest.raises(LookupError, match="all 3"):
        uids.take()
    uids.give_back(1001)
    assert uids.take() == 1001


def test_a_user_is_used_again_as_late_as_can_be() -> None:
    uids = UidRange(first=1000, count=3, start=2)
    first = uids.take()
    uids.give_back(first)

    assert [first, uids.take(), uids.take(), uids.take()] == [1002, 1000, 1001, 1002]


@pytest.mark.parametrize("first, count, start", [(0, 1, 0), (1, 0, 0), (1, 2, 2)])
def test_a_range_is_of_users_that_are_not_root(first: int, count: int, start: int) -> None:
    with pytest.raises(ValueError, match="no range"):
        UidRange(first, count, start)


def test_limits_are_at_least_one() -> None:
    with pytest.raises(ValueError, match="num_threads is 0"):
        IsolateRlimits(num_threads=0)


@pytest.mark.parametrize(
    "uid_map, expected",
    [
        ("         0          0 4294967295\n", (0x7000_0000, 0x0800_0000)),
        # a container with users of its own
        ("         0     231072      65536\n", (20_000, 40_000)),
        ("         0       1000          1\n         1     100000      65536\n", (20_000, 40_000)),
        ("         0      65534          1\n", None),
        ("         0     100000      22000\n", None),
    ],
)
def test_isolates_are_users_that_are_mapped(uid_map: str, expected: tuple[int, int] | None) -> None:
    assert usable_users(uid_map) == expected
