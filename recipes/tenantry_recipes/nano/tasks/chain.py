"""A chain of tool calls, each of whose argument is the result of the one before; scored whole."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .conversation import converse, draw_mode
from .fields import Field, Kind, short_code
from .task import CallsTools, Draw, Example, Mentions, Reply, Turn
from .tool_names import TOOL_NAMES, ToolName
from .tools import call_of, declare

LONGEST = 5
"""Calls of the hard form."""
_STEP_TOKENS = 115
"""Of one step's declaration, call and result, at most about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One step: a tool that turns an id of the thing before into an id of its own thing."""

    name: ToolName
    takes: Field
    gives: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainTask:
    """Follow ids through two to five tools."""

    name: str = "chain"
    only_longest: bool = False

    def generate(self, draw: Draw) -> Example:
        mode = draw_mode(draw)
        most = max(2, min(LONGEST, (draw.max_tokens - 150) // _STEP_TOKENS))
        count = LONGEST if self.only_longest else draw.between(2, most)
        names = _names(draw, count + 1)
        links = _links(names[:count], start=names[count].noun)
        turn = _follow(draw, links, names[count].noun)
        tools = [declare(draw, link.name, [link.takes], [link.takes]) for link in links]
        draw.rng.shuffle(tools)
        return converse(draw, self.name, [turn], mode=mode, tools=tools, whole=True)


CHAIN = ChainTask()
CHAIN5 = ChainTask(name="chain5", only_longest=True)


def _names(draw: Draw, count: int) -> list[ToolName]:
    """Draw tools of different nouns."""
    chosen: dict[str, ToolName] = {}
    while len(chosen) < count:
        name = draw.choice(TOOL_NAMES[draw.split])
        chosen.setdefault(name.noun, name)
    return list(chosen.values())


def _links(names: list[ToolName], start: str) -> list[Link]:
    links, before = [], start
    for name in names:
        kind = Kind(
            names=(f"{before}_id",),
            description=f"Id of the {before}",
            schema={"type": "string"},
            make=short_code,
            clause="",
        )
        takes = Field(name=f"{before}_id", kind=kind)
        links.append(Link(name=name, takes=takes, gives=f"{name.noun}_id"))
        before = name.noun
    return links


def _follow(draw: Draw, links: list[Link], start: str) -> Turn:
    first = code = short_code(draw)
    replies: list[Reply] = []
    for link in links:
        call = call_of(link.name.text, {link.takes.name: code})
        code = short_code(draw)
        replies.append(
            Reply(
                reasoning=f"I call {link.name.text}.",
                calls=(call,),
                results=(json.dumps({link.gives: code}),),
                check=CallsTools(calls=(call,)),
            )
        )
    last = links[-1].name.noun
    answer = f"The id of the {last} is {code}."
    replies.append(Reply(content=answer, reasoning="I have it.", check=Mentions(values=(code,))))
    path = ", then ".join(f"{link.name.verb} the {link.name.noun}" for link in links)
    form = draw.choice(
        (
            "The id of the {s} is {c}. First {p}. What is the id of the {l}?",
            "Start with the {s} {c}: {p}. Tell me the id of the {l}.",
            "My {s} has the id {c}. Please {p}. Give me the id of the {l}.",
        )
    )
    question = form.format(s=start, c=first, p=path, l=last)
    return Turn(
        question=question,
        replies=tuple(replies),
        keys=tuple(link.name.key for link in links),
    )
