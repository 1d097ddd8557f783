"""Sums, differences and products: the arithmetic that several tasks use, with its steps in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tenantry_recipes.nano.splits import Split, split_of

from .task import Draw

Sign = Literal["+", "-", "*"]

_PLACES = ("ones", "tens", "hundreds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """Two numbers and what to do with them."""

    left: int
    sign: Sign
    right: int

    @property
    def value(self) -> int:
        match self.sign:
            case "+":
                return self.left + self.right
            case "-":
                return self.left - self.right
            case "*":
                return self.left * self.right

    @property
    def key(self) -> str | None:
        """Canonical string; None for what has to be learned by heart."""
        if is_fact(self.left, self.sign, self.right):
            return None
        low, high = sorted((self.left, self.right))
        pair = f"{self.left}{self.sign}{self.right}"
        return pair if self.sign == "-" else f"{low}{self.sign}{high}"

    @property
    def text(self) -> str:
        return f"{self.left} {self.sign} {self.right}"

    @property
    def solved(self) -> str:
        """The whole equation: operands right before the result are what makes it easy to learn."""
        return f"{self.text} = {self.value}"

    @property
    def worked(self) -> str:
        """The question, its steps and the whole equation, as one part of a longer reasoning."""
        if self.left < 0 or is_fact(self.left, self.sign, self.right):
            return f"{self.solved}."
        return f"{self.text}: {self.steps()} {self.solved}."

    def steps(self) -> str:
        """Work it out place by place, ones first."""
        match self.sign:
            case "+":
                return _addition_steps(self.left, self.right)
            case "-" if self.left < self.right:
                flipped = _subtraction_steps(self.right, self.left)
                return f"{self.right} is more than {self.left}. {flipped} negative."
            case "-":
                return _subtraction_steps(self.left, self.right)
            case "*":
                return _product_steps(self.left, self.right)


def is_fact(left: int, sign: Sign, right: int) -> bool:
    """Tell whether the result belongs to the tables that children learn by heart."""
    if sign == "*":
        return max(left, right) <= 12 or min(left, right) <= 1
    return max(left, right) < 10


def is_trained(left: int, sign: Sign, right: int) -> bool:
    """Tell whether it may occur inside another task: no task may show another's test instances."""
    key = Sum(left=left, sign=sign, right=right).key
    return key is None or split_of(key) is Split.TRAIN


def trained_sum(draw: Draw, most: int = 50) -> Sum:
    """Draw a sum or a non-negative difference for use inside another task, on either side."""
    while True:
        left, right = draw.between(1, most), draw.between(1, most)
        sign: Sign = draw.choice(("+", "-"))
        if sign == "-":
            left, right = max(left, right), min(left, right)
        if is_trained(left, sign, right):
            return Sum(left=left, sign=sign, right=right)


def _digits(number: int, count: int) -> list[int]:
    return [number // 10**place % 10 for place in range(count)]


def _addition_steps(left: int, right: int) -> str:
    count = len(str(max(left, right)))
    steps, carry = [], 0
    for place, a, b in zip(_PLACES, _digits(left, count), _digits(right, count), strict=False):
        total = a + b + carry
        carried = f" + {carry}" if place != "ones" else ""
        steps.append(f"{place} {a} + {b}{carried} = {total}.")
        carry = total // 10
    return " ".join(steps)


def _subtraction_steps(left: int, right: int) -> str:
    count = len(str(left))
    steps, borrow = [], 0
    for place, a, b in zip(_PLACES, _digits(left, count), _digits(right, count), strict=False):
        taken = f" - {borrow}" if place != "ones" else ""
        lent = 10 if a - b - borrow < 0 else 0
        steps.append(f"{place} {a + lent} - {b}{taken} = {a + lent - b - borrow}.")
        borrow = lent // 10
    return " ".join(steps)


def _product_steps(left: int, right: int) -> str:
    small, large = sorted((left, right))
    tens, ones = large // 10 * 10, large % 10
    if large <= 12 or tens == 0 or ones == 0:
        return f"{left} times {right} is {left * right}."
    added = _addition_steps(small * tens, small * ones)
    return f"{small} * {tens} = {small * tens}. {small} * {ones} = {small * ones}. {added}"
