"""Short reasoning before the answer: word problems of two steps, comparisons, orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from .conversation import TurnTask, answered
from .sorting import first_steps
from .sums import Sign, Sum, is_trained
from .task import Concludes, Draw, Says, Turn
from .words import DAYS, FOODS, JOBS, MONTHS, NAMES, OBJECTS, enumerated

_PLURALS = (*(f"{food}s" for food in ("apple", "banana", "lemon", "melon", "pear", "plum", "grape", "cookie", "onion")),
            *(f"{thing}s" for thing in ("bottle", "candle", "pencil", "ticket", "button", "coin", "jewel", "marble", "shell", "stone", "feather")))  # fmt: skip
_GAINS = ("buys {k} more", "finds {k} more", "gets {k} more from {o}", "picks up {k} more")
_LOSSES = ("gives {k} to {o}", "loses {k}", "sells {k}", "throws {k} away")
_ORDERS = (("taller", "tallest", "shortest"), ("older", "oldest", "youngest"), ("faster", "fastest", "slowest"),
           ("richer", "richest", "poorest"))  # fmt: skip


def reasoning(draw: Draw) -> Turn:
    """Ask something that takes two steps."""
    make: Callable[[Draw], Turn] = draw.choice(PROBLEMS)
    return draw.fresh(lambda: make(draw), lambda turn: turn.keys[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Two steps of arithmetic; no step is another task's test instance."""

    first: Sum
    second: Sum

    @property
    def steps(self) -> str:
        return f"{self.first.worked} {self.second.worked}"


def _story(draw: Draw, signs: tuple[Sign, Sign], most: int = 40) -> Story:
    while True:
        first = _step(draw, draw.between(2, most), signs[0], most)
        second = _step(draw, first.value, signs[1], most)
        if second.value >= 0 and all(
            is_trained(one.left, one.sign, one.right) for one in (first, second)
        ):
            return Story(first=first, second=second)


def _step(draw: Draw, left: int, sign: Sign, most: int) -> Sum:
    if sign == "*":
        return Sum(left=min(left, 10), sign=sign, right=draw.between(2, 10))
    return Sum(left=left, sign=sign, right=draw.between(1, max(1, left if sign == "-" else most)))


def _gain_and_loss(draw: Draw) -> Turn:
    signs: tuple[Sign, ...] = ("+", "-")
    story = _story(draw, (draw.choice(signs), draw.choice(signs)))
    name, other = draw.sample(NAMES, 2)
    things = draw.choice(_PLURALS)
    events = [
        draw.choice(_GAINS if step.sign == "+" else _LOSSES).format(k=step.right, o=other)
        for step in (story.first, story.second)
    ]
    question = draw.choice(
        (
            "{n} has {k} {t}. {n} {a}. Then {n} {b}. How many {t} does {n} have now?",
            "{n} has {k} {t}, {a} and then {b}. How many {t} does {n} have?",
        )
    ).format(n=name, k=story.first.left, t=things, a=events[0], b=events[1])
    return _story_turn(question, story)


def _groups(draw: Draw) -> Turn:
    sign: Sign = draw.choice(("+", "-"))
    story = _story(draw, ("*", sign))
    things = draw.choice(_PLURALS)
    event = (
        f"{story.second.right} more are added"
        if sign == "+"
        else f"{story.second.right} are taken out"
    )
    question = (
        f"There are {story.first.left} boxes with {story.first.right} {things} each. "
        f"{event.capitalize()}. How many {things} are there?"
    )
    return _story_turn(question, story)


def _prices(draw: Draw) -> Turn:
    while True:
        count, price = draw.between(2, 9), draw.between(2, 10)
        first = Sum(left=count, sign="*", right=price)
        paid = draw.choice((20, 50, 100))
        if first.value <= paid and is_trained(paid, "-", first.value):
            break
    second = Sum(left=paid, sign="-", right=first.value)
    name, thing = draw.choice(NAMES), draw.choice(_PLURALS)
    question = (
        f"{name} buys {count} {thing} for {price} dollars each and pays with {paid} dollars. "
        f"How much money does {name} get back?"
    )
    return _story_turn(question, Story(first=first, second=second))


def _compare_sums(draw: Draw) -> Turn:
    while True:
        pairs = [(draw.between(1, 30), draw.between(1, 30)) for _ in range(2)]
        sums = [Sum(left=left, sign="+", right=right) for left, right in pairs]
        if sums[0].value != sums[1].value and all(
            is_trained(one.left, "+", one.right) for one in sums
        ):
            break
    names = draw.sample(NAMES, 2)
    things = draw.choice(_PLURALS)
    parts = [
        f"{name} has {one.left} {things} and gets {one.right} more."
        for name, one in zip(names, sums, strict=True)
    ]
    more = names[0] if sums[0].value > sums[1].value else names[1]
    values = [str(one.value) for one in sums]
    largest = first_steps(values, sorted(values, key=int, reverse=True))
    steps = f"{names[0]}: {sums[0].worked} {names[1]}: {sums[1].worked} The largest: {largest}"
    question = f"{' '.join(parts)} Who has more {things}?"
    return _turn(question, more, steps)


def _compare(draw: Draw) -> Turn:
    names = draw.sample(NAMES, draw.between(2, 4))
    ages = draw.sample(range(5, 90), len(names))
    by_age = sorted(zip(ages, names, strict=True), reverse=draw.chance(0.5))
    oldest = by_age[0][0] > by_age[-1][0]
    word = (
        ("older" if oldest else "younger")
        if len(names) == 2
        else ("oldest" if oldest else "youngest")
    )
    stated = [f"{name} is {age} years old." for name, age in zip(names, ages, strict=True)]
    question = f"{' '.join(stated)} Who is {word if len(names) == 2 else 'the ' + word}?"
    kind = "largest" if oldest else "smallest"
    found = first_steps([str(age) for age in ages], [str(age) for age, _ in by_age])
    return _turn(question, by_age[0][1], f"The {kind}: {found} That is {by_age[0][1]}.")


def _order(draw: Draw) -> Turn:
    names = draw.sample(NAMES, draw.between(3, 4))
    more, most, least = draw.choice(_ORDERS)
    stated = [f"{a} is {more} than {b}." for a, b in pairwise(names)]
    draw.rng.shuffle(stated)
    word = draw.choice((most, least))
    question = f"{' '.join(stated)} Who is the {word}?"
    found = names[0] if word == most else names[-1]
    return _turn(question, found, _climb(names, stated[0], is_up=word == most))


def _climb(names: list[str], first: str, *, is_up: bool) -> str:
    """Go up or down from whoever the first statement names first, a statement at a time."""
    line = names[::-1] if is_up else names
    line = line[line.index(first.split(" ", 1)[0]) :]
    side = "Above" if is_up else "Below"
    steps = [f"{side} {one} is {other}." for one, other in pairwise(line)]
    return " ".join([*steps, f"{side} {line[-1]} is nobody."])


def _calendar(draw: Draw) -> Turn:
    names, unit = draw.choice(((DAYS, "day"), (MONTHS, "month")))
    start, ahead = draw.between(0, len(names) - 1), draw.between(1, 4)
    passed = [names[(start + step) % len(names)] for step in range(1, ahead + 1)]
    person, job = draw.choice(NAMES), draw.choice(JOBS)
    lead = draw.choice(("", f"{person} is a {job}. ", f"{person} waits for a letter. "))
    plural = unit if ahead == 1 else f"{unit}s"
    question = f"{lead}It is {names[start]}. Which {unit} is it in {ahead} {plural}?"
    return _turn(question, passed[-1], f"After {names[start]}: {', '.join(passed)}.")


def _odd_one(draw: Draw) -> Turn:
    foods = draw.between(0, 1)
    many, one = (FOODS, OBJECTS) if foods else (OBJECTS, FOODS)
    chosen, odd = draw.sample(many, 3), draw.choice(one)
    listed = [*chosen, odd]
    draw.rng.shuffle(listed)
    question = f"Which one is {'not ' if foods else ''}food: {enumerated(listed, 'or')}?"
    sorts = [
        f"{each} is {'food' if (each == odd) != bool(foods) else 'not food'}." for each in listed
    ]
    return _turn(question, odd, " ".join(sorts))


PROBLEMS = (
    _gain_and_loss,
    _gain_and_loss,
    _groups,
    _prices,
    _compare_sums,
    _compare,
    _order,
    _order,
    _calendar,
    _odd_one,
)

REASONING = TurnTask(name="reasoning", make_turn=reasoning, max_turns=4, thinking_share=0.8)


def _story_turn(question: str, story: Story) -> Turn:
    return _turn(question, str(story.second.value), story.steps)


def _turn(question: str, answer: str, steps: str) -> Turn:
    check = Concludes(value=answer) if answer.isdigit() else Says(text=f"{answer}.")
    content = answer if answer.isdigit() else f"{answer}."
    return answered(question, content, reasoning=steps, keys=(f"problem {question}",), check=check)
