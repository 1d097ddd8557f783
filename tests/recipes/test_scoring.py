from __future__ import annotations

import pytest

from support.nano import a_draw
from tenantry_recipes.nano.responder import Answer
from tenantry_recipes.nano.scoring import is_right
from tenantry_recipes.nano.tasks.gym import GENERATORS, gym
from tenantry_recipes.nano.tasks.task import (
    CallsTools,
    Check,
    Concludes,
    Fills,
    GymScores,
    Mentions,
    Says,
)
from tenantry_runtime.core import ToolCall


def a_call(name: str, arguments: str) -> ToolCall:
    return ToolCall(id="functions.any:0", name=name, arguments=arguments)


BOOKED = CallsTools(calls=(a_call("book_table", '{"city": "Rome", "guests": 4}'),))


@pytest.mark.parametrize(
    ("check", "content", "right"),
    [
        (Says(text="Paris."), "Paris.", True),
        (Says(text="Paris."), " Paris.\n", True),
        (Says(text="Paris."), "paris.", False),
        (Says(text="Paris."), "Paris. Rome.", False),
        (Concludes(value="42"), "17 + 25 = 42", True),
        (Concludes(value="42"), "42", True),
        (Concludes(value="42"), "The sum is 42.", True),
        (Concludes(value="42"), "42 + 1 = 43", False),
        (Concludes(value="42"), "", False),
        (Concludes(value="-2"), "3 - 5 = 2", False),
        (Mentions(values=("k7q2xm",)), "amber fox: k7q2xm", True),
        (Mentions(values=("k7q2xm",)), "amber fox: k7q2xmm", False),
        (Mentions(values=("aa1111", "bb2222")), "fox: aa1111, owl: bb2222", True),
        (Mentions(values=("aa1111", "bb2222")), "owl: bb2222, fox: aa1111", False),
        (Fills(value={"age": 3, "pets": ["cat"]}), '{"pets": ["cat"], "age": 3}', True),
        (Fills(value={"age": 3}), '{"age": "3"}', False),
        (Fills(value={"age": 3}), '{"age": 3} and more', False),
        (Fills(value={"age": 3}), "age 3", False),
    ],
)
def test_contents_are_judged(check: Check, content: str, right: bool) -> None:
    assert is_right(check, Answer(content=content)) is right


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        ([a_call("book_table", '{"guests":4,"city":"Rome"}')], True),
        ([a_call("book_table", '{"city": "Rome", "guests": "4"}')], False),
        ([a_call("book_table", '{"city": "Rome"}')], False),
        ([a_call("book_room", '{"city": "Rome", "guests": 4}')], False),
        ([a_call("book_table", '{"city": "Rome", "guests": 4')], False),
        ([], False),
        ([a_call("book_table", '{"city": "Rome", "guests": 4}')] * 2, False),
    ],
)
def test_calls_are_judged_by_names_and_arguments(calls: list[ToolCall], right: bool) -> None:
    assert is_right(BOOKED, Answer(content="", tool_calls=tuple(calls))) is right


def test_calling_a_tool_where_words_are_expected_is_wrong() -> None:
    calls = (a_call("book_table", "{}"),)

    assert not is_right(Says(text="Paris."), Answer(content="Paris.", tool_calls=calls))


def test_items_of_reasoning_gym_are_judged_by_its_own_scorers() -> None:
    seen = set()
    for number in range(120):
        turn = gym(a_draw(number))
        (reply,) = turn.replies
        assert isinstance(reply.check, GymScores)
        seen.add(reply.check.generator)
        assert is_right(reply.check, Answer(content=reply.content))
        assert not is_right(reply.check, Answer(content="no idea"))
    assert seen == set(GENERATORS)
