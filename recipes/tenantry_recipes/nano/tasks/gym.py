"""Items of reasoning-gym: questions, answers and scorers that nobody here wrote.

Only generators that a nano model can learn, at sizes that it can learn; an item is a function of its
number, and the text of its question decides its side of the split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import reasoning_gym

from .conversation import TurnTask, answered
from .sums import is_trained
from .task import Draw, GymScores, Turn

_NUM_ITEMS = 2**31 - 1

_SMALL_SUMS: dict[str, Any] = {"min_terms": 2, "min_digits": 1, "max_digits": 2}
_SMALL_NUMBERS: dict[str, Any] = {
    "min_numbers": 3,
    "max_numbers": 4,
    "min_decimals": 0,
    "max_decimals": 0,
    "min_value": 0,
    "max_value": 99,
}

GENERATORS: dict[str, dict[str, Any]] = {
    "basic_arithmetic": {
        **_SMALL_SUMS,
        "max_terms": 2,
        "operators": ("+", "-"),
        "allow_parentheses": False,
        "allow_negation": False,
    },
    "chain_sum": {**_SMALL_SUMS, "max_terms": 3},
    "family_relationships": {"min_family_size": 3, "max_family_size": 4},
    "letter_counting": {"min_words": 1, "max_words": 1},
    "needle_haystack": {"min_num_statements": 3, "max_num_statements": 6},
    "number_filtering": _SMALL_NUMBERS,
    "number_sorting": _SMALL_NUMBERS,
    "simple_equations": {
        "min_terms": 2,
        "max_terms": 2,
        "min_value": 1,
        "max_value": 20,
        "operators": ("+", "-"),
        "operators_weights": (0.5, 0.5),
    },
    "spell_backward": {"min_word_len": 3, "max_word_len": 5},
    "word_sequence_reversal": {"min_words": 3, "max_words": 4},
}
"""Name and configuration of each generator."""


def gym(draw: Draw) -> Turn:
    """Ask an item of a random generator."""
    name = draw.choice(tuple(GENERATORS))
    entry = draw.fresh(
        lambda: _usable_entry(draw, name), lambda made: f"gym {name} {made['question']}"
    )
    question, answer = str(entry["question"]), str(entry["answer"])
    return answered(
        question.strip(),
        answer,
        reasoning=_STEPS.get(name, _no_steps)(question, answer),
        keys=(f"gym {name} {question}",),
        check=GymScores(generator=name, entry=entry),
    )


@cache
def dataset(name: str) -> Any:
    """Open a generator; its items are made when asked for."""
    return reasoning_gym.create_dataset(name, seed=0, size=_NUM_ITEMS, **GENERATORS[name])


def full_marks(name: str, answer: str, entry: Mapping[str, object]) -> bool:
    """Have the generator's own scorer judge an answer."""
    return bool(dataset(name).score_answer(answer, entry) >= 1.0)


GYM = TurnTask(name="gym", make_turn=gym, max_turns=3)


def _usable_entry(draw: Draw, name: str) -> dict[str, Any]:
    while True:
        entry: dict[str, Any] = dataset(name)[draw.between(0, _NUM_ITEMS - 1)]
        if _is_trained(entry["question"]):
            return entry


def _is_trained(question: str) -> bool:
    """Tell whether no sum in it is a test instance of the arithmetic tasks."""
    return all(
        is_trained(left, "+" if sign == "+" else "-", right)
        for left, sign, right, _ in _partial_sums(question)
    )


def _partial_sums(question: str) -> list[tuple[int, str, int, int]]:
    """Read "7 + 5 - 2" as 7 + 5 = 12, 12 - 2 = 10."""
    found = re.search(r"-?\d+(?: [+-] \d+)+", question)
    if found is None:
        return []
    first, *rest = found.group().split(" ")
    total, sums = int(first), []
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        before, right = total, int(term)
        total = before + right if sign == "+" else before - right
        sums.append((before, sign, right, total))
    return sums


def _sum_steps(question: str, answer: str) -> str:
    return " ".join(f"{a} {sign} {b} = {total}." for a, sign, b, total in _partial_sums(question))


def _spell_steps(question: str, answer: str) -> str:
    return f"{' '.join(answer[::-1])} backwards is {' '.join(answer)}."


def _no_steps(question: str, answer: str) -> str:
    return "I work it out."


_STEPS: dict[str, Callable[[str, str], str]] = {
    "basic_arithmetic": _sum_steps,
    "chain_sum": _sum_steps,
    "spell_backward": _spell_steps,
}
