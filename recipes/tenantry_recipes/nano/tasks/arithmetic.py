"""Addition, subtraction, small products: single questions and lists of them."""

from __future__ import annotations

from collections.abc import Callable

from .conversation import TurnTask, answered
from .sums import Sign, Sum
from .task import Concludes, Draw, Says, Turn

_WORDED = {
    "+": ("Add {a} and {b}.", "What is the sum of {a} and {b}?", "What is {a} plus {b}?"),
    "-": ("Subtract {b} from {a}.", "What is {a} minus {b}?", "Take {b} away from {a}."),
    "*": ("Multiply {a} by {b}.", "What is {a} times {b}?", "What is the product of {a} and {b}?"),
}
_PLAIN = (
    "What is {s}?",
    "what is {s}?",
    "What is {s}",
    "{s}",
    "{s} = ?",
    "{s} =",
    "{s}?",
    "Compute {s}.",
    "Calculate {s}.",
    "How much is {s}?",
    "What does {s} equal?",
    "Please compute {s}.",
    "Can you work out {s}?",
    "Tell me {s}.",
    "Solve {s}.",
)
_SEVERAL = (
    "Compute {s}.",
    "Work these out: {s}.",
    "Calculate each: {s}.",
    "Solve {s}",
    "What are {s}?",
)


def addition3(draw: Draw) -> Turn:
    """Ask for sums of two numbers of three digits."""

    def make() -> Sum:
        return Sum(left=draw.between(100, 999), sign="+", right=draw.between(100, 999))

    return _ask(draw, [_fresh(draw, make) for _ in range(_how_many(draw))], "addition3")


def arithmetic(draw: Draw) -> Turn:
    """Ask for sums, differences and products of all sizes up to three digits."""
    return _ask(draw, [_fresh(draw, lambda: _any_sum(draw)) for _ in range(_how_many(draw))], "sum")


ADDITION3 = TurnTask(name="addition3", make_turn=addition3, thinking_share=0.7)
ARITHMETIC = TurnTask(name="arithmetic", make_turn=arithmetic, thinking_share=0.7)


def _fresh(draw: Draw, make: Callable[[], Sum]) -> Sum:
    return draw.fresh(make, lambda made: made.key)


def _how_many(draw: Draw) -> int:
    return 1 if draw.chance(0.6) else draw.between(2, 5)


def _any_sum(draw: Draw) -> Sum:
    sign: Sign = draw.rng.choices(("+", "-", "*"), (5, 4, 2))[0]
    if sign == "*":
        tables = draw.chance(0.6)
        left, right = (
            draw.between(0, 12) if tables else draw.between(2, 9),
            draw.between(2, 12 if tables else 49),
        )
        return Sum(left=left, sign=sign, right=right)
    most = draw.choice((9, 20, 99, 99, 999))
    left, right = draw.between(0, most), draw.between(0, draw.choice((9, most)))
    if sign == "-" and left < right and (most > 99 or draw.chance(0.7)):
        left, right = right, left
    return Sum(left=left, sign=sign, right=right)


def _ask(draw: Draw, sums: list[Sum], kind: str) -> Turn:
    answer = ", ".join(each.solved for each in sums)
    keys = tuple(each.key for each in sums if each.key is not None)
    if len(sums) > 1:
        question = draw.choice(_SEVERAL).format(s=", ".join(each.text for each in sums))
        steps = " ".join(each.worked for each in sums)
        return answered(question, answer, reasoning=steps, keys=keys, check=Says(text=answer))
    (only,) = sums
    forms = _PLAIN if draw.chance(0.65) else _WORDED[only.sign]
    question = draw.choice(forms).format(s=only.text, a=only.left, b=only.right)
    if draw.chance(0.1):
        question = question.replace(" * ", " x ")
    check = Concludes(value=str(only.value))
    return answered(question, answer, reasoning=only.steps(), keys=keys, check=check)
