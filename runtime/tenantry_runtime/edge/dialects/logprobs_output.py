"""Log probabilities as OpenAI's APIs print them: of every token, reasoning and tool calls included."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenantry_runtime.core import ChosenLogprob, Event, LogprobsDelta, TokenLogprob

from .dialect import TokenBytes

LEAST = -9999.0
"""What OpenAI prints for a token that cannot be; JSON has no infinity."""


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    logprob: float
    bytes: list[int]
    """Of its UTF-8; a token may be a part of a character."""


class Logprob(TopLogprob, frozen=True, kw_only=True):
    top_logprobs: list[TopLogprob]


class LogprobsOutput(msgspec.Struct, frozen=True, kw_only=True):
    content: list[Logprob]
    refusal: None = None


def token_text(token_id: int, token_bytes: TokenBytes) -> str:
    """Return a token's text, with U+FFFD where it is not whole characters."""
    return token_bytes(token_id).decode("utf-8", "replace")


def logprobs_of(events: Iterable[Event], token_bytes: TokenBytes) -> list[Logprob]:
    """Collect what events say of tokens, in their order."""
    return [
        logprob(entry, token_bytes)
        for event in events
        if isinstance(event, LogprobsDelta)
        for entry in event.entries
    ]


def logprob(entry: ChosenLogprob, token_bytes: TokenBytes) -> Logprob:
    """Print one token."""
    chosen = _top(entry.chosen, token_bytes)
    return Logprob(
        token=chosen.token,
        logprob=chosen.logprob,
        bytes=chosen.bytes,
        top_logprobs=[_top(each, token_bytes) for each in entry.top],
    )


def _top(each: TokenLogprob, token_bytes: TokenBytes) -> TopLogprob:
    return TopLogprob(
        token=token_text(each.token_id, token_bytes),
        logprob=max(each.logprob, LEAST),
        bytes=[*token_bytes(each.token_id)],
    )
