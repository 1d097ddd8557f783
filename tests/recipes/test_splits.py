from __future__ import annotations

import pytest

from support.nano import some_examples
from tenantry_recipes.nano.splits import TEST_PERCENT, Split, split_of
from tenantry_recipes.nano.tasks import TASKS
from tenantry_recipes.nano.tasks.tool_names import TOOL_NAMES

NUM_EXAMPLES = {"retrieval_hard": 3, "retrieval": 20, "memory": 20}


def keys(name: str, split: Split) -> set[str]:
    examples = some_examples(name, NUM_EXAMPLES.get(name, 60), split=split)
    return {key for example in examples for key in example.keys}


@pytest.mark.parametrize("name", TASKS)
def test_training_and_test_share_no_instance(name: str) -> None:
    train, test = keys(name, Split.TRAIN), keys(name, Split.TEST)

    assert train and test
    assert train.isdisjoint(test)
    assert {split_of(key) for key in train} == {Split.TRAIN}
    assert {split_of(key) for key in test} == {Split.TEST}


@pytest.mark.parametrize("name", TASKS)
def test_every_test_example_has_an_instance_to_judge(name: str) -> None:
    assert all(example.keys for example in some_examples(name, 3, split=Split.TEST))


@pytest.mark.parametrize("name", ["tools", "chain", "chain5"])
def test_tools_of_the_test_side_never_occur_in_training(name: str) -> None:
    trained, tested = (
        {tool.name for example in some_examples(name, 150, split=side) for tool in example.tools}
        for side in Split
    )

    assert trained and tested
    assert trained.isdisjoint(tested)


def test_both_sides_have_many_tool_names() -> None:
    assert len(TOOL_NAMES[Split.TRAIN]) > 1500
    assert len(TOOL_NAMES[Split.TEST]) > 80


def test_the_side_of_an_instance_never_changes() -> None:
    # the first 16 digits of `printf KEY | sha256sum`, modulo 100: a published model depends on them
    assert int("997153b476bc8420", 16) % 100 < TEST_PERCENT
    assert split_of("10+21") is Split.TEST
    assert int("64490a6a1632ced9", 16) % 100 >= TEST_PERCENT
    assert split_of("12+30") is Split.TRAIN


@pytest.mark.parametrize("key", ["17+25", "reverse stone", "tool get_weather"])
def test_what_people_try_first_is_trained_on(key: str) -> None:
    assert split_of(key) is Split.TRAIN


def test_the_test_side_has_its_share() -> None:
    tested = sum(split_of(f"instance {number}") is Split.TEST for number in range(20_000))

    assert abs(tested / 20_000 - TEST_PERCENT / 100) < 0.01
