"""`workerctl sandbox probe`, on whatever machine this is."""

from __future__ import annotations

import msgspec

from support.command_line import workerctl
from tenantry_cli.sandbox import LEVELS
from tenantry_runtime.workers.sandbox import Level


def test_the_probe_reports_every_layer_and_the_level() -> None:
    said = workerctl("sandbox", "probe", "--json", "--floor", "none", env={})
    report = msgspec.json.decode(said.stdout)

    assert said.exit_code == 0
    assert report["level"] in LEVELS
    assert report["reaches_floor"] is True
    assert {"landlock", "system-call-filter", "user-namespace", "cgroup-memory"} <= {
        layer["name"] for layer in report["layers"]
    }


def test_the_table_has_the_reports_layers() -> None:
    said = workerctl("sandbox", "probe", "--floor", "none", env={})

    assert said.exit_code == 0
    assert said.stdout.splitlines()[0].split() == ["LAYER", "WORKS", "DETAIL"]
    assert said.stdout.splitlines()[-1].endswith("floor: none")


def test_an_interpreter_that_is_not_there_fails_in_one_line() -> None:
    said = workerctl("sandbox", "probe", "--interpreter", "/no/such/python", env={})

    assert said.exit_code == 1
    assert "/no/such/python" in said.stderr
    assert len(said.stderr.splitlines()) == 1


def test_the_command_knows_every_level() -> None:
    assert list(LEVELS) == [level.value for level in Level]
