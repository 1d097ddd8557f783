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
from .sorting import sorting_steps
from .strings import counted_letters
from .sums import Sum, is_trained
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
        reasoning=_STEPS[name](question, answer),
        keys=(f"gym {name} {question}",),
        check=GymScores(generator=name, entry=entry),
        is_spelled=name == "spell_backward",
    )


@cache
def dataset(name: str) -> Any:
    """Open a generator; its items are made when asked for."""
    return reasoning_gym.create_dataset(name, seed=0, size=_NUM_ITEMS, **GENERATORS[name])


def full_marks(name: str, answer: str, entry: Mapping[str, object]) -> bool:
    """Have the generator's own scorer judge an answer."""
    return bool(dataset(name).score_answer(answer, entry) >= 1.0)


GYM = TurnTask(name="gym", make_turn=gym, max_turns=3, thinking_share=0.7)


_COUPLE = re.compile(
    r"(\w+) is married to (\w+)\.(?: They have (?:a child|children) called ([^.]+)\.)?"
)
_EQUATION = re.compile(r"(-?\w+) ([+-]) (\w+) = (-?\d+)")


def _usable_entry(draw: Draw, name: str) -> dict[str, Any]:
    while True:
        entry: dict[str, Any] = dataset(name)[draw.between(0, _NUM_ITEMS - 1)]
        if _is_trained(entry["question"]):
            return entry


def _is_trained(question: str) -> bool:
    """Tell whether no sum in it is a test instance of the arithmetic tasks."""
    return all(is_trained(each.left, each.sign, each.right) for each in _sums(question))


def _sums(question: str) -> list[Sum]:
    """Read "7 + 5 - 2" as 7 + 5 = 12, 12 - 2 = 10, and an equation as the sum that solves it."""
    equation = _EQUATION.search(question)
    if equation is not None:
        return _solving_sums(*equation.groups())
    found = re.search(r"-?\d+(?: [+-] \d+)+", question)
    if found is None:
        return []
    first, *rest = found.group().split(" ")
    sums: list[Sum] = []
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        left = sums[-1].value if sums else int(first)
        sums.append(Sum(left=left, sign="+" if sign == "+" else "-", right=int(term)))
    return sums


def _solving_sums(left: str, sign: str, right: str, result: str) -> list[Sum]:
    """Solve "x + 3 = 8", "3 + x = 8", "x - 3 = 8" or "8 - x = 3" for the letter."""
    total = int(result)
    if sign == "+":
        known = int(right) if left.isalpha() else int(left)
        return [Sum(left=total, sign="-", right=known)]
    if left.isalpha():
        return [_offset(int(right), total)]
    return [_offset(int(left), -total)]


def _offset(start: int, change: int) -> Sum:
    return Sum(left=start, sign="+" if change >= 0 else "-", right=abs(change))


def _sum_steps(question: str, answer: str) -> str:
    steps = " ".join(each.worked for each in _sums(question))
    equation = _EQUATION.search(question)
    return f"{equation.group()}. {steps}" if equation else steps


def _spell_steps(question: str, answer: str) -> str:
    return f"{' '.join(answer[::-1])} backwards is {' '.join(answer)}."


def _count_steps(question: str, answer: str) -> str:
    letter, word = re.findall(r'"(.+?)"', question)
    return counted_letters(word, letter)


def _filter_steps(question: str, answer: str) -> str:
    limit, *numbers = map(int, re.findall(r"\d+", question))
    kept = set(map(int, re.findall(r"\d+", answer)))
    return " ".join(
        f"{each} is {_compared(each, limit)}, {'keep' if each in kept else 'drop'}."
        for each in numbers
    )


def _compared(number: int, limit: int) -> str:
    return "equal" if number == limit else "larger" if number > limit else "smaller"


def _sort_steps(question: str, answer: str) -> str:
    ordered = re.findall(r"\d+(?=\.)", answer)
    task = next(line for line in question.splitlines() if re.search(r"order: \S", line))
    entries = re.findall(r"\d+(?=\.)", task)
    is_falling = int(ordered[0]) > int(ordered[-1])
    return f"{'Largest' if is_falling else 'Smallest'} first. {sorting_steps(entries, ordered)}"


def _needle_steps(question: str, answer: str) -> str:
    statements, asked = question.rsplit("Who ", 1)
    sought = f"{answer} {asked.split('?')[0]}."
    assert sought in statements
    return sought


def _reversal_steps(question: str, answer: str) -> str:
    words = reversed(answer.split(", "))
    return f"{', '.join(f'{number} {word}' for number, word in enumerate(words, 1))}."


def _family_steps(question: str, answer: str) -> str:
    """State what the story says of the two, and of the child between them if there is one."""
    story, asked = question.split("\n\n")
    one, other = re.findall(r"\b[A-Z][a-z]+\b", asked)[1:3]
    spouses: dict[str, str] = {}
    parents: dict[str, tuple[str, str]] = {}
    for husband, wife, children in _COUPLE.findall(story):
        spouses |= {husband: wife, wife: husband}
        parents |= dict.fromkeys(re.findall(r"[A-Z]\w+", children), (husband, wife))
    if spouses.get(one) == other:
        return f"{one} is married to {other}."
    if one in parents.get(other, ()):
        return f"{other} is a child of {one}."
    if other in parents.get(one, ()):
        return f"{one} is a child of {other}."
    return f"{one} is married to {spouses[one]}. {spouses[one]} is a child of {other}."


_STEPS: dict[str, Callable[[str, str], str]] = {
    "basic_arithmetic": _sum_steps,
    "chain_sum": _sum_steps,
    "family_relationships": _family_steps,
    "letter_counting": _count_steps,
    "needle_haystack": _needle_steps,
    "number_filtering": _filter_steps,
    "number_sorting": _sort_steps,
    "simple_equations": _sum_steps,
    "spell_backward": _spell_steps,
    "word_sequence_reversal": _reversal_steps,
}
