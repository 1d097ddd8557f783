"""The fold from a sequence's tokens to the events of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenantry_runtime.core import (
    ChosenLogprob,
    Event,
    Finish,
    FinishReason,
    LogprobsDelta,
    OutputEvent,
    Usage,
)
from tenantry_runtime.pool.messages import SequenceTokens, Timings
from tenantry_runtime.text import StopStrings


class Machine(Protocol):
    """An output machine, as `text` has it."""

    @property
    def reasoning_tokens(self) -> int: ...

    @property
    def num_tool_calls(self) -> int:
        """Complete ones."""
        ...

    def feed(self, ids: Sequence[int]) -> list[OutputEvent]: ...

    def finish(self, reason: FinishReason) -> list[OutputEvent]: ...


class Answer:
    """One answer in the making. Streamed and whole answers are made of the same events."""

    def __init__(self, machine: Machine, *, stop: Sequence[str], prompt_tokens: int) -> None:
        self.reason: FinishReason | None = None
        """None until the answer is whole."""
        self.timings: Timings | None = None
        self._machine = machine
        self._stop = StopStrings(stop)
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0
        self._cached_tokens = 0

    @property
    def usage(self) -> Usage:
        """Tokens so far, those whose text is still held back included."""
        return Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            cached_tokens=self._cached_tokens,
            reasoning_tokens=self._machine.reasoning_tokens,
        )

    def take(self, tokens: SequenceTokens) -> list[Event]:
        """Take a step's tokens and return what is now certain, with `Finish` if that is all."""
        assert self.reason is None, "an answer that is whole takes no tokens"
        if not self._completion_tokens:
            # what comes later is of a prompt that was submitted again
            self._cached_tokens = tokens.cached_tokens
        self._completion_tokens += len(tokens.token_ids)
        self.timings = tokens.timings
        events, entries, is_stopped = self._feed(tokens)
        if not is_stopped and tokens.finish is not None:
            rest, is_stopped = self._stop.feed(self._machine.finish(tokens.finish))
            events += rest
            if not is_stopped:
                events += self._stop.flush()
                self.reason = self._why(tokens.finish)
        if is_stopped:
            self.reason = FinishReason.STOP
        told: list[Event] = [*events]
        if entries:
            told.append(LogprobsDelta(entries))
        if self.reason is not None:
            told.append(Finish(reason=self.reason, usage=self.usage))
        return told

    def _feed(
        self, tokens: SequenceTokens
    ) -> tuple[list[OutputEvent], tuple[ChosenLogprob, ...], bool]:
        """Return what may be shown, how likely its tokens were, and whether a stop string has come.

        Tokens whose text is held back are told of at once. The one that completes a stop string is
        not told of, nor any after it: tokens that are told of never hold a whole stop string.
        """
        if not tokens.logprobs:
            events, is_stopped = self._stop.feed(self._machine.feed(tokens.token_ids))
            return events, (), is_stopped
        events = []
        for num_before, token_id in enumerate(tokens.token_ids):
            more, is_stopped = self._stop.feed(self._machine.feed([token_id]))
            events += more
            if is_stopped:
                return events, tokens.logprobs[:num_before], True
        return events, tokens.logprobs, False

    def _why(self, finish: FinishReason) -> FinishReason:
        if finish is FinishReason.STOP and self._machine.num_tool_calls:
            return FinishReason.TOOL_CALLS
        return finish
