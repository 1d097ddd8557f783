from __future__ import annotations

import pytest

from tenantry_recipes.formats.items import CONTEXT_TOKENS, JUDGED, LENGTHS, ItemSource
from tenantry_recipes.nano.models import CHECKPOINTS, NANO_MODELS
from tenantry_recipes.nano.responder import MAX_ANSWER_TOKENS
from tenantry_recipes.nano.splits import Split, split_of
from tenantry_recipes.nano.tasks.task import Mentions
from tenantry_runtime.text import load_text

WHERE = [(name, length) for name, task in JUDGED.items() for length in LENGTHS if task.fits(length)]


@pytest.fixture(scope="module", params=sorted(NANO_MODELS))
def items(request: pytest.FixtureRequest) -> ItemSource:
    return ItemSource(text=load_text(CHECKPOINTS / request.param), seed=0)


@pytest.mark.parametrize(("name", "length"), WHERE)
def test_a_prompt_has_the_length_and_leaves_room_for_an_answer(
    items: ItemSource, name: str, length: int
) -> None:
    for number in range(4):
        num_tokens = items.prompt_tokens(items.item(name, length, number))

        most = min(length, CONTEXT_TOKENS - MAX_ANSWER_TOKENS)
        assert 0.8 * most <= num_tokens <= most


@pytest.mark.parametrize("name", JUDGED)
def test_an_item_asks_one_thing_that_was_never_trained_on(items: ItemSource, name: str) -> None:
    for number in range(4):
        example = items.item(name, 512, number)

        (target,) = example.targets
        assert example.messages[target].role == "assistant"
        assert {split_of(key) for key in example.keys} == {Split.TEST}


def test_an_item_is_the_same_every_time_and_no_other_is(items: ItemSource) -> None:
    first = items.item("lists", 512, 3)

    assert items.item("lists", 512, 3) == first
    others = [
        items.item("lists", 512, 4),
        items.item("lists", 1024, 3),
        ItemSource(text=items.text, seed=1).item("lists", 512, 3),
    ]
    assert first not in others


def test_look_ups_ask_for_one_code_or_for_several(items: ItemSource) -> None:
    for number in range(6):
        for name, is_several in (("retrieval", False), ("retrieval of several", True)):
            (check,) = items.item(name, 512, number).checks.values()
            assert isinstance(check, Mentions)
            assert (len(check.values) > 1) is is_several


def test_only_look_ups_are_judged_at_lengths_that_nothing_else_was_trained_at() -> None:
    longest = {name: max(length for at, length in WHERE if at == name) for name in JUDGED}

    assert longest == {
        "retrieval": 4096,
        "retrieval of several": 4096,
        **dict.fromkeys(("memory", "lists", "arithmetic", "tools"), 1024),
    }
