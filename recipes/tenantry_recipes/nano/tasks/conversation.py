"""From turns to an example: which messages carry reasoning, and which are learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tenantry_runtime.core import Message, RenderOptions, Tool, ToolCall

from .task import Check, Draw, Example, Reply, Says, Turn

FRAME_TOKENS = 12
"""What a template puts around a user's message and its answer, at most."""


def answered(
    question: str,
    answer: str,
    *,
    reasoning: str,
    keys: tuple[str, ...],
    check: Check | None = None,
    is_spelled: bool = False,
) -> Turn:
    """A turn of one question and one answer in words."""
    reply = Reply(
        content=answer,
        reasoning=reasoning,
        check=check or Says(text=answer),
        is_spelled=is_spelled,
    )
    return Turn(question=question, replies=(reply,), keys=keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """Whether the model thinks, and whether past turns keep their reasoning."""

    thinking: bool
    keeps_reasoning: bool = False

    def draw_turns(self, draw: Draw, most: int) -> int:
        """Choose a number of turns: few where only the last one is learned from."""
        return draw.between(1, most if self.keeps_reasoning or not self.thinking else min(most, 2))

    def options(self, draw: Draw) -> RenderOptions:
        """Say it in each way that a request may: a model thinks when nothing is said."""
        if not self.thinking:
            return RenderOptions(thinking=False)
        return RenderOptions(
            thinking=True if draw.chance(0.3) else None,
            preserve_thinking=True if self.keeps_reasoning else None,
            reasoning_effort="high" if draw.chance(0.2) else None,
        )


def draw_mode(draw: Draw, thinking_share: float = 0.5) -> Mode:
    """Choose a mode; kept reasoning is how one thinking conversation gives several targets."""
    if not draw.wants_thinking(thinking_share):
        return Mode(thinking=False)
    return Mode(thinking=True, keeps_reasoning=draw.chance(0.5))


def converse(
    draw: Draw,
    task: str,
    turns: Sequence[Turn],
    *,
    mode: Mode,
    system: str | None = None,
    tools: Sequence[Tool] = (),
    whole: bool = False,
) -> Example:
    """Put turns into one conversation.

    Without thinking every reply is a target. With thinking the templates drop the reasoning of past
    turns, so only the last turn's replies are, unless the options keep it.
    """
    messages = [Message(role="system", content=system)] if system is not None else []
    checks: dict[int, Check] = {}
    spelled: set[int] = set()
    num_calls = 0
    for turn in turns:
        messages.append(Message(role="user", content=turn.question))
        has_reasoning = mode.thinking and (mode.keeps_reasoning or turn is turns[-1])
        for reply in turn.replies:
            if has_reasoning or not mode.thinking:
                checks[len(messages)] = reply.check
                spelled |= {len(messages)} if reply.is_spelled else set()
            messages += _messages_of(reply, num_calls, has_reasoning=has_reasoning)
            num_calls += len(reply.calls)
    return Example(
        task=task,
        messages=tuple(messages),
        tools=tuple(tools),
        options=mode.options(draw),
        checks=checks,
        keys=tuple(key for turn in turns for key in turn.keys),
        spelled=frozenset(spelled),
        whole=whole,
    )


def turn_length(draw: Draw, turn: Turn, mode: Mode) -> int:
    """Estimate the tokens that a turn adds to a conversation."""
    total = draw.length(turn.question)
    for reply in turn.replies:
        total += FRAME_TOKENS + draw.length(reply.content)
        total += draw.length(reply.reasoning) if mode.thinking else 0
        total += sum(8 + draw.length(call.name + call.arguments) for call in reply.calls)
        total += sum(8 + draw.length(result) for result in reply.results)
    return total


def turns_within(
    draw: Draw, make: Callable[[Draw], Turn], count: int, mode: Mode, *, used: int = 0
) -> list[Turn]:
    """Make up to `count` turns, as many as the budget holds and at least one."""
    turns: list[Turn] = []
    for _ in range(count):
        turn = make(draw)
        used += turn_length(draw, turn, mode)
        if turns and used > draw.max_tokens:
            break
        turns.append(turn)
    return turns


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTask:
    """A task whose turns are independent of each other: several make a conversation."""

    name: str
    make_turn: Callable[[Draw], Turn]
    max_turns: int = 8
    thinking_share: float = 0.5

    def generate(self, draw: Draw) -> Example:
        mode = draw_mode(draw, self.thinking_share)
        count = mode.draw_turns(draw, self.max_turns)
        turns = turns_within(draw, self.make_turn, count, mode)
        return converse(draw, self.name, turns, mode=mode)


def call_id(name: str, index: int) -> str:
    """Name call number `index` of a conversation as Kimi does; GLM's format shows no ids."""
    return f"functions.{name}:{index}"


def _messages_of(reply: Reply, num_calls: int, *, has_reasoning: bool) -> list[Message]:
    calls = tuple(
        ToolCall(id=call_id(call.name, index), name=call.name, arguments=call.arguments)
        for index, call in enumerate(reply.calls, num_calls)
    )
    spoken = Message(
        role="assistant",
        content=reply.content,
        reasoning=reply.reasoning if has_reasoning else None,
        tool_calls=calls,
    )
    results = [
        Message(role="tool", content=result, tool_call_id=call.id, name=call.name)
        for call, result in zip(calls, reply.results, strict=True)
    ]
    return [spoken, *results]
