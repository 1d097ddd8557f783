"""What to train on: a conversation's token ids, and which of them the model itself has to write."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry_runtime.core import Message, RenderOptions, Tool

from .model import TextModel
from .prompt import Control, OutputState, Part, Text


def training_ids(
    text: TextModel,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    options: RenderOptions,
    targets: set[int],
    spelled: frozenset[int] = frozenset(),
) -> tuple[list[int], list[bool]]:
    """Return the ids up to the end of the last target turn, and True on what the model writes there.

    `targets` are indices of assistant messages. Of each, reasoning, content, calls and the token that
    ends the turn are marked. What precedes a target is exactly the prompt that serving would make of
    the messages before it; messages after the last target are left out.

    The content of those in `spelled` is one token per character: which pieces a vocabulary has for a
    word is not to be learned from its letters. (As history of a later target it stays so.)

    Raises `ValueError` where one sequence cannot hold all targets, because the template writes a past
    turn otherwise than the model wrote it (it drops old reasoning, say).
    """
    if not targets:
        raise ValueError("no message to train on")
    turns = {at: _turn(text, messages, tools, options, at) for at in sorted(targets)}
    last = max(turns)
    parts = [*turns[last][0], *turns[last][1]]
    is_target = [False] * len(parts)
    is_spelled = [False] * len(parts)
    for at, (prompt, answer) in turns.items():
        end = len(prompt) + len(answer)
        if parts[:end] != [*prompt, *answer]:
            raise ValueError(
                f"message {at} is not written into the history of message {last} as the model wrote it"
            )
        is_target[len(prompt) : end] = [True] * len(answer)
        if at in spelled:
            is_spelled[_last_text(parts[:end])] = True
    ids: list[int] = []
    mask: list[bool] = []
    for part, marked, by_letter in zip(parts, is_target, is_spelled, strict=True):
        part_ids = _letter_ids(text, part) if by_letter else text.encode_part(part)
        ids += part_ids
        mask += [marked] * len(part_ids)
    return ids, mask


def _last_text(parts: Sequence[Part]) -> int:
    """Return where a turn's content is: calls, which come after it, are never spelled."""
    return max(index for index, part in enumerate(parts) if isinstance(part, Text))


def _letter_ids(text: TextModel, part: Part) -> list[int]:
    assert isinstance(part, Text)
    return [each for letter in part.text for each in text.encode_part(Text(letter))]


def _turn(
    text: TextModel,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    options: RenderOptions,
    at: int,
) -> tuple[list[Part], list[Part]]:
    """Return the prompt of one target and what the model is to write after it."""
    message = messages[at]
    if at < 0 or message.role != "assistant":
        raise ValueError(f"message {at} is not the model's")
    prompt = text.render(messages[:at], tools, options)
    if message.reasoning and prompt.initial is not OutputState.REASONING:
        raise ValueError(f"message {at} has reasoning, but the prompt asks for none")
    # with all reasoning kept, the template writes the turn out in full, whatever follows it
    keep = msgspec.structs.replace(options, preserve_thinking=True)
    before = text.render(messages[:at], tools, keep).parts
    after = text.render(messages[: at + 1], tools, keep, add_generation_prompt=False).parts
    # only after a control token do the tokens not depend on what follows
    if after[: len(before)] != before or not isinstance(before[-1], Control):
        raise ValueError(f"message {at} does not continue the prompt that asks for it")
    answer = list(after[len(before) :])
    end = text.turn_end(message)
    if not answer or answer[-1] != end:
        answer.append(end)
    return list(prompt.parts), answer
