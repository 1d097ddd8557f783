"""Contexts: long beginnings of prompts, and what is asked behind each.

| task | all questions of a context share |
|---|---|
| retrieval | a text with codes, whose other keys they ask for |
| tools | the declared tools and a text that says nothing of them |
| memory, lists, arithmetic | a text that says nothing of what is asked |

They share the way of thinking too: some templates say it before anything else. Each question is an
instance of its own, and all are held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from msgspec import structs

from tenantry_recipes.nano.tasks import TASKS
from tenantry_recipes.nano.tasks.conversation import Mode, converse, draw_mode
from tenantry_recipes.nano.tasks.filler import filler_sentence
from tenantry_recipes.nano.tasks.retrieval import (
    LINE_TOKENS,
    MAX_KEYS,
    Table,
    a_table,
    lay_out,
    one_key,
    several_keys,
)
from tenantry_recipes.nano.tasks.task import Draw, Example
from tenantry_recipes.nano.tasks.tools import TOOLS, draw_abilities
from tenantry_runtime.core import Message, RenderOptions, Tool

QUESTIONS = 16
"""Of one context: as many as a text of the shortest length has keys."""
LONG_QUESTIONS = 32
"""Of a context whose reading would take most of the time."""
_LONG_TOKENS = 1025
"""Least length of such ones."""

Question: TypeAlias = Callable[[Draw], Example]
"""Makes one of a context's conversations, with a single target."""
Measure: TypeAlias = Callable[[Example], int]
"""Tokens of the prompt of a conversation's target."""
MakeContext: TypeAlias = Callable[[Draw, Measure], Question]
"""Draws a context for prompts of at most `draw.max_tokens` tokens."""

_MOST_QUESTION_TOKENS = 240
_QUESTION_SHARE = 4
"""A question takes at most this part of a short prompt."""
_LOOKUP_TOKENS = 80
"""Of a question for the codes of six keys and what a template puts around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUps:
    """Codes in a text."""

    is_several: bool

    def __call__(self, draw: Draw, measure: Measure) -> Question:
        table = draw.fresh(lambda: self._table(draw), lambda made: made.key)
        mode = _mode(draw)
        options = mode.options(draw)
        text = lay_out(draw, table, draw.max_tokens - _LOOKUP_TOKENS)
        is_system = draw.chance(0.5)

        def question(own: Draw) -> Example:
            turn = several_keys(own, table) if self.is_several else one_key(own, table)
            asked = turn.question if is_system else f"{text}\n\n{turn.question}"
            example = converse(
                own,
                "retrieval",
                [replace(turn, question=asked, keys=(table.key,))],
                mode=mode,
                system=text if is_system else None,
            )
            return replace(example, options=options)

        return question

    @staticmethod
    def _table(draw: Draw) -> Table:
        # one key for each question, and at most half of the text
        least = questions_of(draw.max_tokens)
        most = max(least, min(MAX_KEYS, draw.max_tokens // 2 // LINE_TOKENS))
        return a_table(draw, draw.between(max(least, most // 4), most))


@dataclass(frozen=True, slots=True, kw_only=True)
class BehindText:
    """Instances of a task behind a text."""

    task: str

    def __call__(self, draw: Draw, measure: Measure) -> Question:
        options = _mode(draw).options(draw)
        room = _question_tokens(draw)
        system = _text_beside(draw, (), options, room, measure)

        def question(own: Draw) -> Example:
            asked = TASKS[self.task].generate(replace(own, max_tokens=room))
            return _behind(own, asked, system, options)

        return question


class ToolsBehindText:
    """Requests of the same tools."""

    def __call__(self, draw: Draw, measure: Measure) -> Question:
        options = _mode(draw).options(draw)
        room = _question_tokens(draw)
        abilities = draw_abilities(replace(draw, max_tokens=draw.max_tokens // 2))
        tools = tuple(ability.tool for ability in abilities)
        bare = measure(_context_alone("", tools, options))
        system = _text_beside(draw, tools, options, room, measure)

        def question(own: Draw) -> Example:
            own = replace(own, max_tokens=bare + room)
            asked = TOOLS.converse_about(own, abilities, draw_mode(own))
            return _behind(own, asked, system, options)

        return question


def questions_of(length: int) -> int:
    """Return how many items share a context, at a length of prompts."""
    return LONG_QUESTIONS if length >= _LONG_TOKENS else QUESTIONS


def by_context(length: int, numbers: Iterable[int]) -> dict[int, list[int]]:
    """Sort items' numbers by the contexts that they are of."""
    found: dict[int, list[int]] = {}
    for number in sorted(numbers):
        found.setdefault(number // questions_of(length), []).append(number)
    return found


def _mode(draw: Draw) -> Mode:
    return Mode(thinking=draw.wants_thinking())


def _question_tokens(draw: Draw) -> int:
    return min(_MOST_QUESTION_TOKENS, draw.max_tokens // _QUESTION_SHARE)


def _text_beside(
    draw: Draw, tools: tuple[Tool, ...], options: RenderOptions, room: int, measure: Measure
) -> str:
    """Make a text that leaves so much room for a question."""
    left = draw.max_tokens - room - measure(_context_alone("", tools, options))
    sentences = [filler_sentence(draw)]
    while (left := left - draw.length(sentences[-1]) - 1) > 0:
        sentences.append(filler_sentence(draw))
    # the last one did not fit
    return " ".join(sentences[:-1])


def _context_alone(text: str, tools: tuple[Tool, ...], options: RenderOptions) -> Example:
    system = Message(role="system", content=text)
    return Example(task="", messages=(system,), tools=tools, options=options, checks={}, keys=())


def _behind(own: Draw, asked: Example, text: str, options: RenderOptions) -> Example:
    """Put a text before a conversation, of whose last turn one reply is the target."""
    spoken = [message for message in asked.messages if message.role != "system"]
    num_dropped = len(asked.messages) - len(spoken)
    last_question = max(at for at, each in enumerate(asked.messages) if each.role == "user")
    target = own.choice([at for at in sorted(asked.targets) if at > last_question])
    return replace(
        asked,
        messages=(Message(role="system", content=text), *spoken),
        # of past reasoning, what the conversation itself says
        options=structs.replace(asked.options, reasoning_effort=options.reasoning_effort),
        checks={target + 1 - num_dropped: asked.checks[target]},
    )
