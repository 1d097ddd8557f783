"""The released form of each checkpoint is written once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from support.conversions import Sources, released_glm
from support.tiny_checkpoints import TinyCheckpoint


@pytest.fixture(scope="session")
def sources(
    checkpoints: Callable[[str], TinyCheckpoint], tmp_path_factory: pytest.TempPathFactory
) -> Sources:
    """Give each GLM checkpoint by name as it is released; nobody may change it."""

    @cache
    def source(name: str) -> Path:
        return released_glm(checkpoints(name), tmp_path_factory.mktemp(name))

    return source
