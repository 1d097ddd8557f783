"""Short lists of words or numbers: sort, reverse, pick, count, search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .conversation import TurnTask, answered
from .sorting import first_steps, sorting_steps
from .task import Concludes, Draw, Says, Turn
from .words import CITIES, COLORS, COMMON_WORDS, NAMES, ORDINALS

_POOLS = (COMMON_WORDS, COMMON_WORDS, NAMES, CITIES, COLORS)
_NUMBERS = tuple(tuple(map(str, range(count))) for count in (20, 100, 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Entries of one kind, none twice."""

    entries: tuple[str, ...]
    pool: Sequence[str]
    """What they were drawn from."""
    is_numeric: bool = False

    @property
    def text(self) -> str:
        return ", ".join(self.entries)


def lists(draw: Draw) -> Turn:
    """Ask for one operation on one list."""
    operation: Callable[[Draw, Listed], Turn] = draw.choice(OPERATIONS)
    listed = draw.fresh(lambda: _a_list(draw), lambda made: f"list {made.text}")
    return operation(draw, listed)


def _a_list(draw: Draw) -> Listed:
    count = draw.between(3, 6)
    is_numeric = draw.chance(0.45)
    pool = draw.choice(_NUMBERS if is_numeric else _POOLS)
    return Listed(entries=tuple(draw.sample(pool, count)), pool=pool, is_numeric=is_numeric)


def _sort(draw: Draw, listed: Listed) -> Turn:
    falls = draw.chance(0.4) and listed.is_numeric
    if listed.is_numeric:
        ordered = sorted(listed.entries, key=int, reverse=falls)
        forms = _SORT_DOWN if falls else _SORT_UP
    else:
        ordered, forms = sorted(listed.entries), _SORT_WORDS
    steps = f"{'Largest' if falls else 'Smallest'} first. " if listed.is_numeric else ""
    steps += sorting_steps(listed.entries, ordered)
    return _turn(draw, listed, forms, ", ".join(ordered), steps)


def _reverse(draw: Draw, listed: Listed) -> Turn:
    backward = ", ".join(reversed(listed.entries))
    return _turn(draw, listed, _REVERSE, backward, f"I start from {listed.entries[-1]}.")


def _nth(draw: Draw, listed: Listed) -> Turn:
    index = draw.between(0, len(listed.entries) - 1)
    is_last = index == len(listed.entries) - 1 and draw.chance(0.7)
    place = "last" if is_last else ORDINALS[index]
    chosen = listed.entries[index]
    counted = zip(listed.entries[: index + 1], ORDINALS, strict=False)
    steps = ", ".join(f"{entry} {ordinal}" for entry, ordinal in counted)
    return _turn(draw, listed, _NTH, chosen, f"{steps}.", p=place)


def _count(draw: Draw, listed: Listed) -> Turn:
    counted = ", ".join(f"{entry} {index}" for index, entry in enumerate(listed.entries, 1))
    return _turn(draw, listed, _COUNT, str(len(listed.entries)), f"{counted}.")


def _contains(draw: Draw, listed: Listed) -> Turn:
    searched = draw.choice(listed.entries if draw.chance(0.5) else listed.pool)
    found = searched in listed.entries
    position = listed.entries.index(searched) + 1 if found else len(listed.entries)
    seen = (f"{each} {'yes' if each == searched else 'no'}" for each in listed.entries[:position])
    steps = f"I look for {searched}: {', '.join(seen)}."
    return _turn(draw, listed, _CONTAINS, "yes" if found else "no", steps, e=searched)


def _extreme(draw: Draw, listed: Listed) -> Turn:
    if not listed.is_numeric:
        return _nth(draw, listed)
    largest = draw.chance(0.5)
    ordered = sorted(listed.entries, key=int, reverse=largest)
    word = draw.choice(("largest", "biggest") if largest else ("smallest", "lowest"))
    steps = f"The {'largest' if largest else 'smallest'}: {first_steps(listed.entries, ordered)}"
    return _turn(draw, listed, _EXTREME, ordered[0], steps, p=word)


def _join(draw: Draw, listed: Listed) -> Turn:
    mark, name = draw.choice(
        (("-", "dashes"), ("/", "slashes"), (" ", "spaces"), ("+", "plus signs"))
    )
    return _turn(
        draw, listed, _JOIN, mark.join(listed.entries), f"I put {name} between them.", p=name
    )


_SORT_UP = (
    "Sort {l}.",
    "Sort these numbers: {l}.",
    "Put {l} in order.",
    "Sort from small to large: {l}.",
)
_SORT_DOWN = (
    "Sort {l} in descending order.",
    "Sort from large to small: {l}.",
    "Sort {l}, largest first.",
)
_SORT_WORDS = (
    "Sort {l}.",
    "Sort these words: {l}.",
    "Put {l} in alphabetical order.",
    "Sort alphabetically: {l}.",
)
_REVERSE = (
    "Reverse the list {l}.",
    "Reverse this list: {l}.",
    "List these backwards: {l}.",
    "Turn the order around: {l}.",
)
_NTH = (
    "What is the {p} item of {l}?",
    "Which item is {p} in the list {l}?",
    "Give the {p} of these: {l}.",
    "Name the {p} item: {l}.",
)
_COUNT = ("How many items are in {l}?", "Count the items: {l}.", "How long is the list {l}?")
_CONTAINS = (
    "Is {e} in the list {l}?",
    "Does the list {l} contain {e}?",
    "Is {e} one of these: {l}?",
)
_EXTREME = (
    "What is the {p} of {l}?",
    "Which number is the {p}: {l}?",
    "Find the {p} number in {l}.",
)
_JOIN = ("Join {l} with {p}.", "Join these with {p}: {l}.", "Put {p} between {l}.")

OPERATIONS = (_sort, _sort, _reverse, _nth, _count, _contains, _extreme, _join)

LISTS = TurnTask(name="lists", make_turn=lists, max_turns=6, thinking_share=0.7)


def _turn(
    draw: Draw,
    listed: Listed,
    forms: Sequence[str],
    answer: str,
    reasoning: str,
    **slots: str,
) -> Turn:
    return answered(
        draw.choice(forms).format(l=listed.text, **slots),
        answer,
        reasoning=reasoning,
        keys=(f"list {listed.text}",),
        check=Says(text=answer) if " " in answer else Concludes(value=answer),
    )
