"""Checkpoints are written once for all tests here; every test computes on one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch

from support.tiny_checkpoints import BUILDERS, TinyCheckpoint, build


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TinyCheckpoint]:
    """Give each checkpoint by name, written and asked when first wanted."""
    root = tmp_path_factory.mktemp("checkpoints")

    @cache
    def checkpoint(name: str) -> TinyCheckpoint:
        return build(name, root / name)

    return checkpoint


@pytest.fixture(params=BUILDERS)
def tiny(
    request: pytest.FixtureRequest, checkpoints: Callable[[str], TinyCheckpoint]
) -> TinyCheckpoint:
    """Each checkpoint in turn."""
    return checkpoints(request.param)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)
