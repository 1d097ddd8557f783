"""Key-value retrieval: a text lists codes under keys, the user asks for some of them.

One context carries several questions, at uniform depth, so that a long row gives many targets. The
hard form has 64 or more keys in 3,500 or more tokens; it is what cache formats are judged by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .conversation import FRAME_TOKENS, Mode, answered, converse, draw_mode, turn_length
from .filler import filler_sentence
from .task import Draw, Example, Mentions, Turn
from .words import ADJECTIVES, COMMON_WORDS, DIGITS, LETTERS, enumerated

VALUE_LENGTH = 6
"""Characters of a code."""
MIN_KEYS = 4
MAX_KEYS = 128
HARD_KEYS = 64
"""Fewest keys of the hard form."""
HARD_TOKENS = 3500
"""Fewest tokens of the hard form's conversation."""

_VALUE_CHARACTERS = LETTERS + DIGITS
_LINE_FORMS = (
    "{k}: {v}",
    "{k} = {v}",
    "{k} -> {v}",
    "- {k}: {v}",
    "The code of {k} is {v}.",
    "{k} has the code {v}.",
)
_HEADERS = (
    "Here is a list of codes.",
    "Remember these codes.",
    "These are the codes for today.",
    "Read the following notes.",
)
_QUESTIONS = (
    "What is the code of {k}?",
    "Give me the code of {k}.",
    "Which code does {k} have?",
    "code of {k}?",
    "Tell me the code of {k}.",
)
_QUESTIONS_SEVERAL = (
    "What are the codes of {k}?",
    "Give me the codes of {k}.",
    "List the codes of {k}.",
)
_BARE = (" Answer with the code only.", " Only the code.")
MAX_QUESTIONS = 16
"""In one conversation."""

LINE_TOKENS = 14
"""Of a key, a code and what is around them, at most about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Codes under keys, in the order in which the text lists them."""

    codes: dict[str, str]

    @property
    def key(self) -> str:
        return "codes " + " ".join(self.codes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalTask:
    """Ask for codes in a text of 4 to 128 keys."""

    name: str = "retrieval"
    is_hard: bool = False

    def generate(self, draw: Draw) -> Example:
        mode = draw_mode(draw)
        total = self._total_tokens(draw)
        table = draw.fresh(
            lambda: a_table(draw, self._num_keys(draw, total)), lambda made: made.key
        )
        turns = [one_key(draw, table)] if self.is_hard else _questions(draw, table, mode, total)
        budget = total - FRAME_TOKENS - sum(turn_length(draw, turn, mode) for turn in turns)
        text = lay_out(draw, table, budget)
        if draw.chance(0.5):
            return converse(draw, self.name, _keyed(turns, table), mode=mode, system=text)
        first = Turn(question=f"{text}\n\n{turns[0].question}", replies=turns[0].replies, keys=())
        return converse(draw, self.name, _keyed([first, *turns[1:]], table), mode=mode)

    def _total_tokens(self, draw: Draw) -> int:
        if self.is_hard:
            return draw.between(HARD_TOKENS + 100, draw.max_tokens)
        least = draw.max_tokens * 4 // 5 if draw.chance(0.5) else 160
        return draw.between(min(least, draw.max_tokens), draw.max_tokens)

    def _num_keys(self, draw: Draw, total: int) -> int:
        if self.is_hard:
            return draw.between(HARD_KEYS, MAX_KEYS)
        most = max(MIN_KEYS, min(MAX_KEYS, total // 2 // LINE_TOKENS))
        return draw.between(max(MIN_KEYS, most // 4), most)


RETRIEVAL = RetrievalTask()
RETRIEVAL_HARD = RetrievalTask(name="retrieval_hard", is_hard=True)


def a_code(draw: Draw) -> str:
    """Draw letters and digits, at least one of each."""
    if not draw.has_random_letters:
        return "".join(draw.choice(DIGITS) for _ in range(VALUE_LENGTH))
    while True:
        code = "".join(draw.choice(_VALUE_CHARACTERS) for _ in range(VALUE_LENGTH))
        if not (code.isalpha() or code.isdigit()):
            return code


def a_table(draw: Draw, num_keys: int) -> Table:
    """Draw codes under so many keys, on any side of the split."""
    if draw.chance(0.4) and num_keys <= len(COMMON_WORDS):
        keys = draw.sample(COMMON_WORDS, num_keys)
    else:
        pairs = draw.sample(range(len(ADJECTIVES) * len(COMMON_WORDS)), num_keys)
        keys = [
            f"{ADJECTIVES[pair % len(ADJECTIVES)]} {COMMON_WORDS[pair // len(ADJECTIVES)]}"
            for pair in pairs
        ]
    return Table(codes={key: a_code(draw) for key in keys})


def _questions(draw: Draw, table: Table, mode: Mode, total: int) -> list[Turn]:
    """Make questions for at most two fifths of the budget: the more, the denser the supervision."""
    most = mode.draw_turns(draw, MAX_QUESTIONS)
    turns: list[Turn] = []
    room = total * 2 // 5
    while len(turns) < most:
        turn = _question(draw, table)
        room -= turn_length(draw, turn, mode)
        if turns and room < 0:
            break
        turns.append(turn)
    return turns


def _question(draw: Draw, table: Table) -> Turn:
    return one_key(draw, table) if draw.chance(0.5) else several_keys(draw, table)


def one_key(draw: Draw, table: Table) -> Turn:
    """Ask for the code of a key."""
    asked = draw.choice(list(table.codes))
    question = draw.choice(_QUESTIONS).format(k=asked)
    if draw.chance(0.2):
        return _asked(table, [asked], question + draw.choice(_BARE), table.codes[asked])
    return _asked(table, [asked], question, f"{asked}: {table.codes[asked]}")


def several_keys(draw: Draw, table: Table) -> Turn:
    """Ask for the codes of two to six keys."""
    keys = list(table.codes)
    asked = draw.sample(keys, draw.between(2, min(6, len(keys))))
    question = draw.choice(_QUESTIONS_SEVERAL).format(k=enumerated(asked))
    return _asked(table, asked, question, ", ".join(f"{key}: {table.codes[key]}" for key in asked))


def _asked(table: Table, asked: list[str], question: str, answer: str) -> Turn:
    found = [f"{key}: {table.codes[key]}" for key in asked]
    return answered(
        question,
        answer,
        reasoning=f"The text says {enumerated(found)}.",
        keys=(),
        check=Mentions(values=tuple(table.codes[key] for key in asked)),
    )


def lay_out(draw: Draw, table: Table, budget: int) -> str:
    """Lay the codes out, with filler between them until the budget is used."""
    form = draw.choice(_LINE_FORMS)
    header = draw.choice(_HEADERS)
    lines = [form.format(k=key, v=code) for key, code in table.codes.items()]
    lines = _mixed(draw, lines, _filler(draw, budget - draw.length("\n".join([header, *lines]))))
    # tokens across line ends are not the sum of the lines' own
    missing = budget - draw.length("\n".join([header, *lines]))
    return "\n".join([header, *_mixed(draw, lines, _filler(draw, missing))])


def _filler(draw: Draw, num_tokens: int) -> list[str]:
    sentences: list[str] = []
    while num_tokens > 0:
        sentences.append(filler_sentence(draw))
        num_tokens -= draw.length(sentences[-1]) + 1
    return sentences


def _mixed(draw: Draw, lines: list[str], others: list[str]) -> list[str]:
    """Interleave two lists at random; each keeps its order."""
    from_first = [True] * len(lines) + [False] * len(others)
    draw.rng.shuffle(from_first)
    first, second = iter(lines), iter(others)
    return [next(first if is_first else second) for is_first in from_first]


def _keyed(turns: Sequence[Turn], table: Table) -> list[Turn]:
    first = turns[0]
    keyed = Turn(question=first.question, replies=first.replies, keys=(table.key,))
    return [keyed, *turns[1:]]
