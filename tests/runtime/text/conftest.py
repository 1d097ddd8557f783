"""The two nano checkpoints' text layers; a test that counts call ids makes its own."""

from __future__ import annotations

import pytest

from support.text import GLM_NANO, KIMI_NANO, a_text_model
from tenantry_runtime.text import TextModel


@pytest.fixture(scope="session")
def kimi() -> TextModel:
    return a_text_model(KIMI_NANO)


@pytest.fixture(scope="session")
def glm() -> TextModel:
    return a_text_model(GLM_NANO)


@pytest.fixture(scope="session", params=["kimi", "glm"])
def model(request: pytest.FixtureRequest) -> TextModel:
    """Either family."""
    return a_text_model(KIMI_NANO if request.param == "kimi" else GLM_NANO)
