"""No process of a tenant's outlives the runtime, however that ends."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from support.escapes.modes import MODES, TESTS, command, present_modes

pytestmark = pytest.mark.isolates

PATIENCE_MS = 10_000


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """Have what a killed runtime leaves in a folder that goes with the test."""
    with tempfile.TemporaryDirectory(prefix="tenantry-lifetime-") as folder:
        os.chmod(folder, 0o777)
        yield {**os.environ, "TMPDIR": folder}


@pytest.mark.parametrize("mode", present_modes())
def test_a_runtime_that_is_killed_takes_its_isolates_along(
    mode: str, environment: dict[str, str]
) -> None:
    started = command(MODES[mode], "support.templates", MODES[mode].level)
    with subprocess.Popen(started, cwd=TESTS, stdout=subprocess.PIPE, env=environment) as runtime:
        assert runtime.stdout is not None
        handles = [os.pidfd_open(int(pid)) for pid in runtime.stdout.readline().split()]
        try:
            assert len(handles) == 3

            runtime.kill()

            assert [has_ended(handle) for handle in handles] == [True] * 3
        finally:
            for handle in handles:
                os.close(handle)


def has_ended(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(PATIENCE_MS))
