"""Following a system prompt: rules about the form of every answer, on top of simple questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from tenantry_recipes.nano.splits import Split

from .conversation import answered, converse, draw_mode, turns_within
from .facts import facts
from .sums import trained_sum
from .task import Draw, Example, Fills, Says, Turn
from .words import ADJECTIVES, ANIMALS, COLORS, FOODS

_WORDS = tuple(word.capitalize() for word in (*COLORS, *FOODS[:12]))
_TITLES = ("Captain", "Doctor", "Professor", "Boss", "Friend", "Chief", "Teacher", "Sir")
_TOPICS = (*(f"{animal}s" for animal in ANIMALS[:8]), "apples", "boats", "trains", "music")
_REFUSAL = "I cannot talk about that."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One demand on every answer."""

    key: str
    text: str
    """As the system prompt says it."""
    note: str
    """As the reasoning recalls it."""
    apply: Callable[[str], str]
    is_json: bool = False
    refuses: str | None = None
    """The topic that it forbids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionsTask:
    """A system prompt of one or two rules, then simple questions."""

    name: str = "instructions"
    max_turns: int = 6

    def generate(self, draw: Draw) -> Example:
        rules = _some_rules(draw)
        mode = draw_mode(draw)
        count = mode.draw_turns(draw, self.max_turns)
        turns = turns_within(draw, lambda one: _ruled(one, rules), count, mode, used=30)
        lead = draw.choice(("", "You are a helpful assistant. ", "Follow the rules. "))
        system = lead + " ".join(rule.text for rule in rules)
        return converse(draw, self.name, turns, mode=mode, system=system)


INSTRUCTIONS = InstructionsTask()


def _some_rules(draw: Draw) -> list[Rule]:
    """Draw one rule, or two that go together; the order is that in which they apply."""
    if draw.chance(0.15):
        return [_json(draw)]
    if draw.chance(0.2):
        return [_refuse(draw)]
    if draw.chance(0.25):
        return [draw.choice((_prefix, _title))(draw), draw.choice((_suffix, _remark))(draw)]
    return [draw.choice((_upper, _lower, _prefix, _suffix, _title, _brackets, _remark))(draw)]


def _ruled(draw: Draw, rules: list[Rule]) -> Turn:
    """Ask something and answer it under the rules; the instance is the pair of both."""
    ruling = "+".join(rule.key for rule in rules)
    plain = draw.fresh(
        lambda: _plain(draw, rules[0].refuses), lambda made: f"{ruling}: {made.keys[0]}"
    )
    (reply,) = plain.replies
    answer = reply.content
    is_cased = rules[0].key in ("upper", "lower")
    thought = reply.reasoning or (reply.content if is_cased else "")
    note = " ".join(filter(None, (thought, *(rule.note for rule in rules))))
    for rule in rules:
        answer = rule.apply(answer)
    if rules[0].refuses is not None:
        refuses = rules[0].refuses in plain.question
        answer = _REFUSAL if refuses else answer
        note = f"{note} {'This is about' if refuses else 'This is not about'} {rules[0].refuses}."
    check = Fills(value=json.loads(answer)) if rules[0].is_json else Says(text=answer)
    return answered(
        plain.question,
        answer,
        reasoning=note,
        keys=(f"{ruling}: {plain.keys[0]}",),
        check=check,
        is_spelled=is_cased,
    )


def _plain(draw: Draw, topic: str | None) -> Turn:
    if topic is not None and draw.chance(0.7):
        return _about(draw, topic if draw.chance(0.5) else draw.choice(_TOPICS))
    if draw.chance(0.5):
        asked = trained_sum(draw, most=20)
        question = draw.choice(("What is {s}?", "Compute {s}.", "{s} = ?")).format(s=asked.text)
        return answered(question, asked.solved, reasoning=asked.worked, keys=(asked.text,))
    # known phrasings only: what is new here is the rule
    known = facts(replace(draw, split=Split.TRAIN))
    (reply,) = known.replies
    return replace(known, replies=(replace(reply, reasoning=""),), keys=(reply.content,))


def _about(draw: Draw, topic: str) -> Turn:
    form = draw.choice(("Tell me about {t}.", "Do you like {t}?", "What do you think of {t}?"))
    question = form.format(t=topic)
    return answered(question, f"I like {topic}.", reasoning="", keys=(question,))


def _upper(draw: Draw) -> Rule:
    text = draw.choice(
        (
            "Answer in uppercase.",
            "Write every answer in capital letters.",
            "Use only capital letters.",
        )
    )
    return Rule(key="upper", text=text, note="I answer in capital letters.", apply=str.upper)


def _lower(draw: Draw) -> Rule:
    text = draw.choice(
        ("Answer in lowercase.", "Use only small letters.", "Write all in lowercase.")
    )
    return Rule(key="lower", text=text, note="I answer in small letters.", apply=str.lower)


def _prefix(draw: Draw) -> Rule:
    word = draw.choice(_WORDS)
    form = draw.choice(
        (
            "Begin every answer with {w}.",
            "Start each answer with the word {w}.",
            "Your first word is always {w}.",
        )
    )
    return Rule(
        key=f"prefix {word}",
        text=form.format(w=word),
        note=f"I begin with {word}.",
        apply=lambda answer: f"{word}. {answer}",
    )


def _suffix(draw: Draw) -> Rule:
    word = draw.choice(_WORDS)
    form = draw.choice(
        (
            "End every answer with {w}.",
            "Finish each answer with the word {w}.",
            "Your last word is always {w}.",
        )
    )
    return Rule(
        key=f"suffix {word}",
        text=form.format(w=word),
        note=f"I end with {word}.",
        apply=lambda answer: f"{answer} {word}.",
    )


def _title(draw: Draw) -> Rule:
    word = draw.choice(_TITLES)
    form = draw.choice(
        ("Call the user {w}.", "Address the user as {w}.", "The user is called {w}.")
    )
    return Rule(
        key=f"title {word}",
        text=form.format(w=word),
        note=f"The user is {word}.",
        apply=lambda answer: f"{word}, {answer}",
    )


def _brackets(draw: Draw) -> Rule:
    name, left, right = draw.choice(
        (("brackets", "[", "]"), ("quotes", '"', '"'), ("stars", "*", "*"))
    )
    form = draw.choice(("Put every answer in {w}.", "Write each answer inside {w}."))
    return Rule(
        key=name,
        text=form.format(w=name),
        note=f"I use {name}.",
        apply=lambda answer: f"{left}{answer}{right}",
    )


def _remark(draw: Draw) -> Rule:
    adjective = draw.choice(ADJECTIVES)
    form = draw.choice(
        ("After each answer say that it is {w}.", "After every answer add: That is {w}.")
    )
    return Rule(
        key=f"remark {adjective}",
        text=form.format(w=adjective),
        note=f"I add that it is {adjective}.",
        apply=lambda answer: f"{answer} That is {adjective}.",
    )


def _json(draw: Draw) -> Rule:
    field = draw.choice(("answer", "result", "reply", "output", "text"))
    form = draw.choice(
        (
            "Answer as a JSON object with the field {f}.",
            'Answer in JSON with one field "{f}".',
            "Reply only with JSON. Put the answer in {f}.",
        )
    )
    return Rule(
        key=f"json {field}",
        text=form.format(f=field),
        note=f"I write JSON with {field}.",
        apply=lambda answer: json.dumps({field: answer}),
        is_json=True,
    )


def _refuse(draw: Draw) -> Rule:
    topic = draw.choice(_TOPICS)
    form = draw.choice(
        (
            'Never talk about {t}. If asked, say "{r}"',
            'Do not talk about {t}. If the user asks, answer "{r}"',
        )
    )
    return Rule(
        key=f"refuse {topic}",
        text=form.format(t=topic, r=_REFUSAL),
        note=f"I do not talk about {topic}.",
        apply=lambda answer: answer,
        refuses=topic,
    )
