"""Multi-turn reference: the user states things, corrects some, and later asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .conversation import Mode, answered, converse, draw_mode, turn_length
from .sums import trained_sum
from .task import Draw, Example, Turn
from .words import ANIMALS, CITIES, COLORS, DAYS, FOODS, JOBS, MONTHS, NAMES

_NUMBERS = tuple(str(number) for number in range(2, 100))
_MINE: dict[str, Sequence[str]] = {
    "name": NAMES,
    "favorite color": COLORS,
    "favorite food": FOODS,
    "favorite animal": ANIMALS,
    "favorite day": DAYS,
    "lucky number": _NUMBERS,
    "age": _NUMBERS,
    "city": CITIES,
    "job": JOBS,
    "birth month": MONTHS,
    "room number": _NUMBERS,
}
_STATE = (
    "My {a} is {v}.",
    "my {a} is {v}",
    "Please remember: my {a} is {v}.",
    "You should know that my {a} is {v}.",
)
_CORRECT = (
    "Actually, my {a} is {v}.",
    "Sorry, I was wrong: my {a} is {v}.",
    "No, my {a} is {v}.",
    "Correction: my {a} is {v}.",
)
_ASK = ("What is my {a}?", "Do you remember my {a}?", "Tell me my {a}.", "what is my {a}?")
_STATE_OTHER = ("{n}'s {a} is {v}.", "The {a} of {n} is {v}.", "Remember that {n}'s {a} is {v}.")
_ASK_OTHER = ("What is {n}'s {a}?", "What is the {a} of {n}?", "Tell me {n}'s {a}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """One thing said, about the user (`owner` None) or somebody else."""

    owner: str | None
    attribute: str
    value: str

    @property
    def subject(self) -> str:
        return f"{self.owner}'s {self.attribute}" if self.owner else f"Your {self.attribute}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTask:
    """Statements, corrections, small sums in between, and questions about what was said."""

    name: str = "memory"
    max_turns: int = 14

    def generate(self, draw: Draw) -> Example:
        mode = draw_mode(draw)
        turns = draw.fresh(lambda: self._turns(draw, mode), _key)
        keyed = replace(turns[0], keys=(_key(turns),))
        return converse(draw, self.name, [keyed, *turns[1:]], mode=mode)

    def _turns(self, draw: Draw, mode: Mode) -> list[Turn]:
        known: dict[str, list[Stated]] = {}
        turns: list[Turn] = []
        used, count = 0, draw.between(2, self.max_turns)
        while len(turns) < count and used < draw.max_tokens * 3 // 4:
            turns.append(_next_turn(draw, known))
            used += turn_length(draw, turns[-1], mode)
        return [*turns, _ask(draw, known)]


MEMORY = MemoryTask()


def _key(turns: list[Turn]) -> str:
    return "memory " + " ".join(turn.replies[0].content for turn in turns)


def _next_turn(draw: Draw, known: dict[str, list[Stated]]) -> Turn:
    kind = draw.rng.random()
    if not known or kind < 0.35:
        return _state(draw, known)
    if kind < 0.6:
        return _correct(draw, known)
    if kind < 0.7:
        asked = trained_sum(draw)
        return answered(f"What is {asked.text}?", asked.solved, reasoning=asked.steps(), keys=())
    return _ask(draw, known)


def _a_statement(draw: Draw, owner: str | None, attribute: str) -> Stated:
    return Stated(owner=owner, attribute=attribute, value=draw.choice(_MINE[attribute]))


def _state(draw: Draw, known: dict[str, list[Stated]]) -> Turn:
    owner = draw.choice(NAMES) if draw.chance(0.35) else None
    choices = [each for each in _MINE if owner is None or each != "name"]
    stated = _a_statement(draw, owner, draw.choice(choices))
    if stated.subject in known:
        return _correct(draw, known)
    known[stated.subject] = [stated]
    return _noted(stated, _said(draw, stated, _STATE))


def _correct(draw: Draw, known: dict[str, list[Stated]]) -> Turn:
    history = known[draw.choice(list(known))]
    corrected = _a_statement(draw, history[-1].owner, history[-1].attribute)
    history.append(corrected)
    return _noted(corrected, _said(draw, corrected, _CORRECT))


def _said(draw: Draw, stated: Stated, forms: Sequence[str]) -> str:
    if stated.owner is None:
        return draw.choice(forms).format(a=stated.attribute, v=stated.value)
    lead = "" if forms is _STATE else "Correction: "
    form = draw.choice(_STATE_OTHER)
    return lead + form.format(n=stated.owner, a=stated.attribute, v=stated.value)


def _noted(stated: Stated, said: str) -> Turn:
    return answered(
        said, f"Noted. {stated.subject} is {stated.value}.", reasoning="I remember this.", keys=()
    )


def _ask(draw: Draw, known: dict[str, list[Stated]]) -> Turn:
    history = known[draw.choice(list(known))]
    stated = history[-1]
    forms = _ASK if stated.owner is None else _ASK_OTHER
    question = draw.choice(forms).format(n=stated.owner, a=stated.attribute)
    told = ", then ".join(each.value for each in history)
    return answered(
        question,
        f"{stated.subject} is {stated.value}.",
        reasoning=f"The user told me {told}. It is {stated.value}.",
        keys=(),
    )
