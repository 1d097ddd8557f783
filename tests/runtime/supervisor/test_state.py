"""The state directory: private, of one instance, and never the cause of a path that is too long."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.supervisor.state import claim


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_directory_is_its_owners_alone(tmp_path: Path) -> None:
    with claim(tmp_path / "deep" / "state") as state:
        assert mode(state.path) == 0o700
        assert mode(state.run) == 0o700
        assert mode(state.log("node").parent) == 0o700


def test_a_directory_that_exists_keeps_its_mode_but_the_socket_is_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    with claim(tmp_path) as state:
        assert mode(tmp_path) == 0o755
        assert mode(state.socket("node").parent) == 0o700


def test_a_second_instance_is_refused_and_told_who_and_what_to_do(tmp_path: Path) -> None:
    with claim(tmp_path), pytest.raises(ConfigurationError) as caught, claim(tmp_path):
        pass

    assert f"process {os.getpid()} uses" in str(caught.value)
    assert "--state-dir" in str(caught.value)


def test_a_directory_is_free_again_after_use(tmp_path: Path) -> None:
    with claim(tmp_path):
        pass
    with claim(tmp_path):
        pass


def test_a_file_in_the_directorys_place_is_named(tmp_path: Path) -> None:
    file = tmp_path / "state"
    file.touch()

    with pytest.raises(ConfigurationError, match=str(file)), claim(file):
        pass


def test_a_long_path_gets_its_socket_elsewhere_for_as_long_as_it_is_used(tmp_path: Path) -> None:
    # 107 bytes are what Linux takes
    with claim(tmp_path / ("x" * 120)) as state:
        assert len(os.fsencode(state.socket("node"))) <= 107
        assert mode(state.socket("node").parent) == 0o700

    assert not state.socket("node").parent.exists()
