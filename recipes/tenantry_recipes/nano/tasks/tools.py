"""Calling one of several declared tools with the right arguments, and using what it returns.

Names are composed, so that all tools of a test conversation are unseen. Some questions need no tool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tenantry_recipes.nano.splits import Split
from tenantry_runtime.core import Tool, ToolCall

from .conversation import Mode, answered, converse, draw_mode, turns_within
from .facts import facts, small_talk
from .fields import Field, draw_fields, said, short_code
from .sums import trained_sum
from .task import CallsTools, Draw, Example, Reply, Says, Turn
from .tool_names import ASKING_VERBS, TOOL_NAMES, ToolName
from .words import article, enumerated

_REQUESTS = (
    "Please {v} {d} {n} {c}.",
    "{V} {d} {n} {c}.",
    "Can you {v} {d} {n} {c}?",
    "I want to {v} {d} {n} {c}.",
    "{V} {d} {n} for me {c}.",
)
_ASKING = ("What is the {n} {c}?", "Tell me the {n} {c}.", "I need to know the {n} {c}.")
_DESCRIPTIONS = (
    "{V} {a} {n}.",
    "{V} the {n} of the user.",
    "Use this to {v} {a} {n}.",
    "{V} {a} {n} and return the result.",
)
_RESULT_WORDS = ("done", "open", "ready", "full", "empty", "late", "free")
_PREAMBLE_TOKENS = 100
"""What a template says of tools as such, and a system prompt: Kimi's less, GLM's a little more."""
_TOOL_TOKENS = 110
"""Of one declaration, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """A declared tool, and how it is spoken of."""

    name: ToolName
    fields: tuple[Field, ...]
    required: tuple[Field, ...]
    tool: Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsTask:
    """One to five declared tools, a few requests."""

    name: str = "tools"
    max_turns: int = 4

    def generate(self, draw: Draw) -> Example:
        mode = draw_mode(draw)
        return self.converse_about(draw, draw_abilities(draw), mode)

    def converse_about(self, draw: Draw, abilities: Sequence[Ability], mode: Mode) -> Example:
        """Make requests, all about the same declared tools."""
        used = _PREAMBLE_TOKENS + sum(_declared_length(draw, each.tool) for each in abilities)
        turns = turns_within(
            draw,
            lambda one: _turn(one, abilities),
            mode.draw_turns(draw, self.max_turns),
            mode,
            used=used,
        )
        names = tuple(ability.name.key for ability in abilities)
        keyed = replace(turns[0], keys=names)
        system = draw.choice((None, None, "You are a helpful assistant.", "Use the tools."))
        tools = [ability.tool for ability in abilities]
        return converse(draw, self.name, [keyed, *turns[1:]], mode=mode, system=system, tools=tools)


TOOLS = ToolsTask()


def draw_abilities(draw: Draw) -> list[Ability]:
    """Draw one to five tools, as many as the budget holds."""
    most = max(1, min(5, (draw.max_tokens - _PREAMBLE_TOKENS) // _TOOL_TOKENS))
    return _abilities(draw, draw.between(1, most))


def declare(draw: Draw, name: ToolName, fields: Sequence[Field], required: Sequence[Field]) -> Tool:
    """Write the declaration of a tool that takes `fields`."""
    described = draw.chance(0.5)
    form = draw.choice(_DESCRIPTIONS)
    parameters = {
        "type": "object",
        "properties": {field.name: field.schema(described=described) for field in fields},
        "required": [field.name for field in required],
    }
    description = form.format(
        V=name.verb.capitalize(), v=name.verb, a=article(name.noun), n=name.noun
    )
    return Tool(name=name.text, description=description, parameters=parameters)


def call_of(name: str, arguments: Mapping[str, object]) -> ToolCall:
    """Make a call; its id is given when the conversation is put together."""
    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


def _declared_length(draw: Draw, tool: Tool) -> int:
    return draw.length(json.dumps([tool.name, tool.description, tool.parameters]))


def _abilities(draw: Draw, count: int) -> list[Ability]:
    """Draw tools; some share the verb or the noun of the first, so that half a name is not enough."""
    pool = TOOL_NAMES[draw.split]
    first = draw.choice(pool)
    akin = [each for each in pool if (each.verb == first.verb) != (each.noun == first.noun)]
    chosen = {first}
    while len(chosen) < count:
        chosen.add(draw.choice(akin if akin and draw.chance(0.4) else pool))
    # a set's order depends on the process, this one's on the seed
    return [_ability(draw, name) for name in sorted(chosen, key=lambda each: each.text)]


def _ability(draw: Draw, name: ToolName) -> Ability:
    fields = draw_fields(draw, draw.rng.choices((0, 1, 2, 3), (1, 5, 6, 4))[0])
    required = [field for field in fields if draw.chance(0.7)]
    tool = declare(draw, name, fields, required)
    return Ability(name=name, fields=tuple(fields), required=tuple(required), tool=tool)


def _turn(draw: Draw, abilities: Sequence[Ability]) -> Turn:
    if draw.chance(0.2):
        return _without_tool(draw)
    if draw.chance(0.15):
        return _request(draw, [draw.choice(abilities), draw.choice(abilities)])
    return _request(draw, [draw.choice(abilities)])


def _without_tool(draw: Draw) -> Turn:
    trained = replace(draw, split=Split.TRAIN)
    if draw.chance(0.4):
        asked = trained_sum(draw)
        return answered(f"What is {asked.text}?", asked.solved, reasoning=asked.steps(), keys=())
    return replace(draw.choice((facts, small_talk))(trained), keys=())


def _request(draw: Draw, abilities: Sequence[Ability]) -> Turn:
    """Ask for one call, or for several in one message."""
    calls, requests, answers, results, notes = [], [], [], [], []
    for ability in abilities:
        values = _values(draw, ability)
        calls.append(call_of(ability.name.text, values))
        requests.append(_asked(draw, ability, values))
        result, answer = _outcome(draw, ability.name.noun)
        results.append(result)
        answers.append(answer)
        notes.append(" with ".join(filter(None, (ability.name.text, enumerated(list(values))))))
    calling = Reply(
        reasoning=f"I call {enumerated(notes)}.",
        calls=tuple(calls),
        results=tuple(results),
        check=CallsTools(calls=tuple(calls)),
    )
    answer = " ".join(answers)
    telling = Reply(content=answer, reasoning="I tell the result.", check=Says(text=answer))
    return Turn(question=" ".join(requests), replies=(calling, telling), keys=())


def _values(draw: Draw, ability: Ability) -> dict[str, object]:
    """Draw arguments: all required ones, others now and then."""
    return {
        field.name: field.kind.make(draw)
        for field in ability.fields
        if field in ability.required or draw.chance(0.5)
    }


def _asked(draw: Draw, ability: Ability, values: Mapping[str, object]) -> str:
    given = [field for field in ability.fields if field.name in values]
    if draw.chance(0.6):
        # booleans are clauses of their own: they come last
        given.sort(key=lambda field: isinstance(values[field.name], bool))
        clauses = " ".join(field.natural(values[field.name]) for field in given)
    else:
        draw.rng.shuffle(given)
        clauses = enumerated([field.explicit(values[field.name]) for field in given])
        clauses = f"with {clauses}" if clauses else ""
    name = ability.name
    asks = name.verb in ASKING_VERBS and draw.chance(0.5)
    form = draw.choice(_ASKING if asks else _REQUESTS)
    which = draw.choice((article(name.noun), "the", "my"))
    text = form.format(v=name.verb, V=name.verb.capitalize(), d=which, n=name.noun, c=clauses)
    return text.replace(" .", ".").replace(" ?", "?")


def _outcome(draw: Draw, noun: str) -> tuple[str, str]:
    """Draw what a tool returns, and the sentence that tells it."""
    field = draw.choice(("id", "price", "total", "status", "time", "number", "size"))
    value: object
    match field:
        case "id":
            value = short_code(draw)
        case "status":
            value = draw.choice(_RESULT_WORDS)
        case "time":
            value = f"{draw.between(1, 23)}:{draw.between(10, 59)}"
        case _:
            value = draw.between(1, 999)
    extra = {"ok": True} if draw.chance(0.3) else {}
    return json.dumps({**extra, field: value}), f"The {field} of the {noun} is {said(value)}."
