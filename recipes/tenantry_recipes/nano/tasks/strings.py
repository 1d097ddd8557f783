"""Letters of one word: reverse, spell, count, pick, change case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .conversation import TurnTask, answered
from .task import Check, Concludes, Draw, Says, Turn
from .words import COMMON_WORDS, LETTERS, ORDINALS


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """What an operation makes of a word."""

    key: str
    question: str
    answer: str
    reasoning: str
    check: Check | None = None


_ONSETS = (*"bcdfghjklmnpqrstvwxyz", "br", "ch", "dr", "fl", "gr", "pl", "sh", "st", "th", "tr", "")
_VOWELS = (*"aeiou", "ea", "ai", "oo", "ou")
_CODAS = (*"nrtlskm", "ck", "nd", "st", "ng", "", "", "", "", "")

Operation = Callable[[Draw, str], Solved]


def strings(draw: Draw) -> Turn:
    """Ask for one operation on one word, or on each of several."""
    if draw.chance(0.3):
        return _each(draw)
    operation: Operation = draw.choice(OPERATIONS)
    solved = draw.fresh(lambda: operation(draw, a_word(draw)), lambda made: made.key)
    return answered(
        solved.question,
        solved.answer,
        reasoning=solved.reasoning,
        keys=(solved.key,),
        check=solved.check,
        is_spelled=True,
    )


def a_word(draw: Draw) -> str:
    """Draw a word of the lexicon, or syllables or letters, which no model can know by heart."""
    if draw.chance(0.45) or not draw.has_random_letters:
        return draw.choice(COMMON_WORDS)
    if draw.chance(0.5):
        return "".join(_a_syllable(draw) for _ in range(draw.between(2, 3)))[:7]
    return "".join(draw.choice(LETTERS) for _ in range(draw.between(3, 7)))


def _a_syllable(draw: Draw) -> str:
    """Draw letters that words consist of: it takes them to learn the pieces of a vocabulary."""
    return f"{draw.choice(_ONSETS)}{draw.choice(_VOWELS)}{draw.choice(_CODAS)}"


def spelled(word: str) -> str:
    return " ".join(word)


def counted_letters(word: str, letter: str) -> str:
    """Spell a word and number each occurrence of a letter."""
    steps, found = [], 0
    for each in word:
        is_it = each.lower() == letter
        found += is_it
        steps.append(f"{each} {found}" if is_it else each)
    return f"{', '.join(steps)}. {letter}: {found}."


def _each(draw: Draw) -> Turn:
    operation, forms = draw.choice(_EACH)
    words: dict[str, Solved] = {}
    for _ in range(draw.between(2, 4)):
        word, solved = draw.fresh(lambda: _applied(draw, operation), lambda made: made[1].key)
        words[word] = solved
    question = draw.choice(forms).format(l=", ".join(words))
    return answered(
        question,
        ", ".join(solved.answer for solved in words.values()),
        reasoning=" ".join(solved.reasoning for solved in words.values()),
        keys=tuple(solved.key for solved in words.values()),
        is_spelled=True,
    )


def _applied(draw: Draw, operation: Operation) -> tuple[str, Solved]:
    word = a_word(draw)
    return word, operation(draw, word)


def _reverse(draw: Draw, word: str) -> Solved:
    form = draw.choice(
        (
            "Reverse the word {w}.",
            "Reverse {w}.",
            "Write {w} backwards.",
            "Spell {w} backwards.",
            "What is {w} reversed?",
            "What is {w} spelled backwards?",
            "Reverse the letters of {w}.",
            "Please reverse the word {w}.",
        )
    )
    backward = word[::-1]
    return Solved(
        key=f"reverse {word}",
        question=form.format(w=_quoted(draw, word)),
        answer=backward,
        reasoning=f"{spelled(word)} backwards is {spelled(backward)}.",
    )


def _spell(draw: Draw, word: str) -> Solved:
    form = draw.choice(
        ("Spell {w}.", "Spell the word {w}.", "How do you spell {w}?", "List the letters of {w}.")
    )
    return Solved(
        key=f"spell {word}",
        question=form.format(w=_quoted(draw, word)),
        answer=spelled(word),
        reasoning=f"I write {word} letter by letter.",
    )


def _length(draw: Draw, word: str) -> Solved:
    form = draw.choice(
        (
            "How many letters are in {w}?",
            "How many letters does {w} have?",
            "How long is the word {w}?",
            "Count the letters in {w}.",
        )
    )
    counted = ", ".join(f"{letter} {index}" for index, letter in enumerate(word, 1))
    return Solved(
        key=f"length {word}",
        question=form.format(w=_quoted(draw, word)),
        answer=f"{len(word)}",
        reasoning=f"{counted}.",
        check=Concludes(value=str(len(word))),
    )


def _count(draw: Draw, word: str) -> Solved:
    letter = draw.choice(word) if draw.chance(0.8) else draw.choice(LETTERS)
    form = draw.choice(
        (
            "How many times does {l} occur in {w}?",
            "How many {l}'s are in {w}?",
            "Count the letter {l} in {w}.",
            "How often is the letter {l} in {w}?",
        )
    )
    found = word.count(letter)
    return Solved(
        key=f"count {letter} {word}",
        question=form.format(l=letter, w=_quoted(draw, word)),
        answer=f"{found}",
        reasoning=counted_letters(word, letter),
        check=Concludes(value=str(found)),
    )


def _nth(draw: Draw, word: str) -> Solved:
    index = draw.between(0, len(word) - 1)
    is_last = index == len(word) - 1 and draw.chance(0.7)
    place = "last" if is_last else ORDINALS[index]
    form = draw.choice(
        (
            "What is the {p} letter of {w}?",
            "Give the {p} letter of {w}.",
            "Which letter is {p} in {w}?",
            "Name the {p} letter in the word {w}.",
        )
    )
    return Solved(
        key=f"letter {place} {word}",
        question=form.format(p=place, w=_quoted(draw, word)),
        answer=word[index],
        reasoning=f"{spelled(word)}. The {place} is {word[index]}.",
    )


def _upper(draw: Draw, word: str) -> Solved:
    form = draw.choice(
        (
            "Write {w} in uppercase.",
            "Uppercase {w}.",
            "Put {w} in capital letters.",
            "Convert {w} to uppercase.",
        )
    )
    return Solved(
        key=f"upper {word}",
        question=form.format(w=_quoted(draw, word)),
        answer=word.upper(),
        reasoning=f"{spelled(word)} becomes {spelled(word.upper())}.",
    )


def _lower(draw: Draw, word: str) -> Solved:
    form = draw.choice(("Write {w} in lowercase.", "Lowercase {w}.", "Convert {w} to lowercase."))
    return Solved(
        key=f"lower {word}",
        question=form.format(w=_quoted(draw, word.upper())),
        answer=word,
        reasoning=f"{spelled(word.upper())} becomes {spelled(word)}.",
    )


def _joined(draw: Draw, word: str) -> Solved:
    form = draw.choice(
        (
            "Join the letters {s}.",
            "Join {s} into one word.",
            "Put the letters {s} together.",
            "Which word do the letters {s} make?",
        )
    )
    return Solved(
        key=f"join {word}",
        question=form.format(s=draw.choice((spelled(word), ", ".join(word), "-".join(word)))),
        answer=word,
        reasoning="I join the letters in order.",
        check=Says(text=word),
    )


def _quoted(draw: Draw, word: str) -> str:
    return f'"{word}"' if draw.chance(0.2) else word


OPERATIONS: tuple[Operation, ...] = (
    _reverse,
    _reverse,
    _spell,
    _length,
    _count,
    _nth,
    _upper,
    _lower,
    _joined,
)

_EACH: tuple[tuple[Operation, tuple[str, ...]], ...] = (
    (_reverse, ("Reverse each word: {l}.", "Reverse these words: {l}.", "Spell backwards: {l}.")),
    (_length, ("Count the letters of each word: {l}.", "How long is each word: {l}?")),
    (_upper, ("Write each word in uppercase: {l}.", "Put these in capital letters: {l}.")),
)

STRINGS = TurnTask(name="strings", make_turn=strings, thinking_share=0.7)
