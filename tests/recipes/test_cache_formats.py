"""The nano models answer with an FP8 cache what they answer with a BF16 one."""

from __future__ import annotations

import pytest

from tenantry_recipes.nano.models import checkpoint_directory
from tenantry_recipes.nano.responder import Ask
from tenantry_recipes.nano.serving import EngineResponder
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.core import Message, RenderOptions

QUESTIONS = {
    "What is 17 + 25?": "42",
    "What is 48 + 37?": "85",
    "What is 90 - 42?": "48",
    "What color is the sky?": "blue",
    "What is the capital of France?": "Paris",
}


def answers(model: str, cache: CacheName) -> list[str]:
    asks = [
        Ask(messages=(Message(role="user", content=text),), tools=(), options=RenderOptions())
        for text in QUESTIONS
    ]
    with EngineResponder.load(checkpoint_directory(model), cache=cache) as responder:
        return [answer.content for answer in responder.respond(asks)]


@pytest.mark.parametrize("model", ["kimi-k2.6-nano", "glm-5.2-nano"])
def test_answers_are_right_and_the_same_in_every_cache_format(model: str) -> None:
    fp8 = answers(model, "fp8")
    for said, right in zip(fp8, QUESTIONS.values(), strict=True):
        assert right in said
    assert fp8 == answers(model, "bf16") == answers(model, "float32")
