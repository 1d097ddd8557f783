from __future__ import annotations

from itertools import takewhile

import pytest

from tenantry_recipes.formats.contexts import QUESTIONS, by_context, questions_of
from tenantry_recipes.formats.items import (
    CONTEXT_TOKENS,
    JUDGED,
    LEAST_SHARE,
    LENGTHS,
    ItemSource,
)
from tenantry_recipes.nano.models import CHECKPOINTS, NANO_MODELS
from tenantry_recipes.nano.responder import MAX_ANSWER_TOKENS
from tenantry_recipes.nano.splits import Split, split_of
from tenantry_recipes.nano.tasks.task import CallsTools, Mentions
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.text import load_text

WHERE = [(name, length) for name, task in JUDGED.items() for length in LENGTHS if task.fits(length)]


@pytest.fixture(scope="module", params=sorted(NANO_MODELS))
def items(request: pytest.FixtureRequest) -> ItemSource:
    return ItemSource(text=load_text(CHECKPOINTS / request.param), seed=0)


@pytest.mark.parametrize(("name", "length"), WHERE)
def test_prompts_of_a_context_begin_alike_and_leave_room_for_an_answer(
    items: ItemSource, name: str, length: int
) -> None:
    for number in range(2):
        prompts = [items.prompt_ids(each) for each in items.context(name, length, number)]

        most = min(length, CONTEXT_TOKENS - MAX_ANSWER_TOKENS)
        assert len(prompts) == questions_of(length)
        assert all(LEAST_SHARE * most <= len(ids) <= most for ids in prompts)
        columns = zip(*prompts, strict=False)
        num_common = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
        # three of four tokens, and what a template says of tools is all that is lost
        assert num_common // PAGE_TOKENS * PAGE_TOKENS >= 0.6 * most


@pytest.mark.parametrize("name", JUDGED)
def test_questions_of_a_context_are_all_different(items: ItemSource, name: str) -> None:
    prompts = {tuple(items.prompt_ids(each)) for each in items.context(name, 512, 0)}

    assert len(prompts) == QUESTIONS


@pytest.mark.parametrize("name", JUDGED)
def test_an_item_asks_one_thing_that_was_never_trained_on(items: ItemSource, name: str) -> None:
    for example in (*items.context(name, 512, 0), *items.context(name, 512, 1)):
        (target,) = example.targets
        assert example.messages[target].role == "assistant"
        assert {split_of(key) for key in example.keys} == {Split.TEST}


@pytest.mark.parametrize("name", ["retrieval", "tools"])
def test_every_other_context_thinks(items: ItemSource, name: str) -> None:
    for number in range(4):
        thinks = {each.options.thinking is not False for each in items.context(name, 512, number)}

        assert thinks == {number % 2 == 0}


def test_items_are_numbered_through_their_contexts(items: ItemSource) -> None:
    contexts = [items.context("lists", 512, number) for number in range(2)]

    found = items.items("lists", 512, [3, QUESTIONS - 1, QUESTIONS + 5])
    assert found == {
        3: contexts[0][3],
        QUESTIONS - 1: contexts[0][-1],
        QUESTIONS + 5: contexts[1][5],
    }


def test_two_thousand_items_have_at_least_sixty_contexts_at_every_length() -> None:
    num_contexts = {length: len(by_context(length, range(2000))) for length in LENGTHS}

    assert num_contexts == {512: 125, 1024: 125, 2048: 63, 4096: 63}
    assert by_context(4096, [40, 3, 31]) == {0: [3, 31], 1: [40]}


def test_a_context_is_the_same_every_time_and_no_other_is(items: ItemSource) -> None:
    first = items.context("lists", 512, 3)

    assert ItemSource(text=items.text, seed=0).context("lists", 512, 3) == first
    others = [
        items.context("lists", 512, 4),
        items.context("lists", 1024, 3),
        ItemSource(text=items.text, seed=1).context("lists", 512, 3),
    ]
    assert first not in others
    assert len({str(each[0].messages[0]) for each in (first, *others)}) == 4


def test_look_ups_ask_for_one_code_or_for_several(items: ItemSource) -> None:
    for name, is_several in (("retrieval", False), ("retrieval of several", True)):
        for example in items.context(name, 512, 0):
            (check,) = example.checks.values()
            assert isinstance(check, Mentions)
            assert (len(check.values) > 1) is is_several


def test_tools_are_to_be_called_and_their_results_to_be_told(items: ItemSource) -> None:
    checks = [check for each in items.context("tools", 1024, 0) for check in each.checks.values()]
    num_calls = sum(isinstance(check, CallsTools) for check in checks)

    assert 0 < num_calls < len(checks)


def test_what_was_encoded_before_is_encoded_as_the_tokenizer_does(items: ItemSource) -> None:
    for example in items.context("tools", 512, 0):
        (target,) = example.targets
        prompt = items.text.render(example.messages[:target], example.tools, example.options)

        assert items.encoder.encode(prompt) == items.text.encode(prompt)


def test_only_look_ups_are_judged_at_lengths_that_nothing_else_was_trained_at() -> None:
    longest = {name: max(length for at, length in WHERE if at == name) for name in JUDGED}

    assert longest == {
        "retrieval": 4096,
        "retrieval of several": 4096,
        **dict.fromkeys(("memory", "lists", "arithmetic", "tools"), 1024),
    }
