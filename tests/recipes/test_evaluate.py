from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from support.nano import Oracle
from tenantry_recipes.nano.evaluate import JUDGED, Score, evaluate, held_out, judge, table
from tenantry_recipes.nano.responder import Answer, OneByOne
from tenantry_recipes.nano.splits import Split, split_of
from tenantry_recipes.nano.tasks import TASKS
from tenantry_recipes.nano.tasks.task import Example
from tenantry_runtime.core import Message, RenderOptions, Tool


def examples_of(name: str, count: int = 3, *, thinking: bool = True) -> list[Example]:
    return list(held_out(name, count, thinking=thinking))


@pytest.mark.parametrize("name", JUDGED)
@pytest.mark.parametrize("thinking", [True, False])
def test_the_right_answers_score_in_full(name: str, thinking: bool) -> None:
    examples = examples_of(name, thinking=thinking)
    verdicts = judge(Oracle(examples), examples)

    assert verdicts and all(verdicts)


@pytest.mark.parametrize("name", JUDGED)
def test_other_answers_score_nothing(name: str) -> None:
    examples = examples_of(name)
    nobody = OneByOne(generate=lambda messages, tools, options: Answer(content="no idea"))

    assert not any(judge(nobody, examples))


def test_every_judged_instance_lies_on_the_test_side() -> None:
    for name in JUDGED:
        for example in held_out(name, 3, thinking=False):
            assert {split_of(key) for key in example.keys} == {Split.TEST}


def test_all_tasks_are_judged_but_those_that_others_cover() -> None:
    assert set(JUDGED) == TASKS.keys() - {"mixed", "chain"}


def test_a_chain_counts_as_one_and_stops_at_its_first_wrong_call() -> None:
    (example,) = examples_of("chain5", 1)
    third = example.messages[sorted(example.targets)[2]].tool_calls[0].name
    oracle = Oracle([example], wrong=[third])

    assert judge(oracle, [example]) == [False]
    assert len(oracle.asked) == 3


def test_a_chain_goes_on_from_what_the_model_itself_thought() -> None:
    (example,) = examples_of("chain5", 1)
    known = {len(example.messages[:target]): example.messages[target] for target in example.targets}
    histories: list[Sequence[Message]] = []

    def generate(
        messages: Sequence[Message], tools: Sequence[Tool], options: RenderOptions
    ) -> Answer:
        histories.append(messages)
        right = known[len(messages)]
        return Answer(
            content=right.content, reasoning="my own thought", tool_calls=right.tool_calls
        )

    assert judge(OneByOne(generate=generate), [example]) == [True]
    thoughts = [each.reasoning for each in histories[-1] if each.role == "assistant"]
    assert thoughts == ["my own thought"] * 5


def test_turns_of_other_examples_are_judged_one_by_one() -> None:
    examples = examples_of("memory", 4, thinking=False)
    last = examples[0].messages[-1].content
    verdicts = judge(Oracle(examples, wrong=[last]), examples)

    assert verdicts.count(False) >= 1
    assert verdicts.count(True) >= 1


def test_scores_are_reported_as_they_come_and_laid_out() -> None:
    heard: list[Score] = []
    nobody = OneByOne(generate=lambda messages, tools, options: Answer(content="Goodbye!"))
    scores = evaluate(nobody, names=["facts", "small_talk"], count=4, report=heard.append)

    assert scores == heard
    assert [(score.task, score.thinking) for score in scores] == [
        ("facts", True),
        ("facts", False),
        ("small_talk", True),
        ("small_talk", False),
    ]
    lines = table(scores).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| facts | 0.0% | 0.0% |")


def test_held_out_examples_are_the_same_every_time() -> None:
    first, second = (examples_of("tools", 5) for _ in range(2))

    assert first == second
    assert json.dumps([tool.name for tool in first[0].tools])
