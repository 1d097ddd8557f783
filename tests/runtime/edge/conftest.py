from __future__ import annotations

import anyio
import pytest

from support.edges import State, make_state


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    """One store for all tests here: none of them changes it."""
    return anyio.run(make_state, tmp_path_factory.mktemp("edge") / "state")
