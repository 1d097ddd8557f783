from __future__ import annotations

import pytest

from tenantry_recipes.bench.prompts import LEAST_TOKENS, MOST_TOKENS, distinct_prompts
from tenantry_recipes.nano.models import NANO_MODELS, checkpoint_directory
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.text import TextModel, load_text


@pytest.fixture(scope="module", params=sorted(NANO_MODELS))
def text(request: pytest.FixtureRequest) -> TextModel:
    return load_text(checkpoint_directory(request.param))


def test_prompts_have_the_promised_length_and_share_no_page(text: TextModel) -> None:
    prompts = distinct_prompts(text, 20)

    assert len(prompts) == 20
    assert {LEAST_TOKENS <= len(prompt.token_ids) <= MOST_TOKENS for prompt in prompts} == {True}
    assert len({prompt.token_ids[:PAGE_TOKENS] for prompt in prompts}) == 20


def test_ids_are_those_of_the_messages(text: TextModel) -> None:
    (prompt,) = distinct_prompts(text, 1)
    rendered = text.render(prompt.messages, (), prompt.options)

    assert text.encode(rendered) == list(prompt.token_ids)
    assert prompt.messages[-1].role == "user"


def test_prompts_are_the_same_every_time(text: TextModel) -> None:
    assert distinct_prompts(text, 3) == distinct_prompts(text, 3)
