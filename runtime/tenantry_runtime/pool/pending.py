"""Tokens that wait for a reader, merged so that a slow reader costs memory for ids only."""

from __future__ import annotations

from .messages import SequenceTokens


class PendingTokens:
    """The tokens of one sequence that its reader has not taken yet, in order."""

    __slots__ = ("_cached_tokens", "_last", "_logprobs", "_token_ids")

    def __init__(self, first: SequenceTokens) -> None:
        self._last = first
        self._token_ids: list[int] | None = None
        self._logprobs = list(first.logprobs)
        # set with the first tokens of a sequence and nowhere else
        self._cached_tokens = first.cached_tokens

    def __len__(self) -> int:
        return len(self._last.token_ids if self._token_ids is None else self._token_ids)

    def add(self, tokens: SequenceTokens) -> None:
        if self._token_ids is None:
            self._token_ids = list(self._last.token_ids)
        self._token_ids += tokens.token_ids
        self._logprobs += tokens.logprobs
        self._last = tokens

    def take(self) -> SequenceTokens:
        """Return what has gathered as one message; the object is spent."""
        if self._token_ids is None:
            return self._last
        return SequenceTokens(
            request_id=self._last.request_id,
            token_ids=tuple(self._token_ids),
            logprobs=tuple(self._logprobs),
            finish=self._last.finish,
            cached_tokens=self._cached_tokens,
            timings=self._last.timings,
        )
