"""Grammars over one vocabulary, compiled with llguidance: whether they can be, and what they allow.

Nothing here is shared between two grammars but the vocabulary, which is nobody's: what compiling one
takes does not depend on what others have asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

MAX_GRAMMAR_BYTES = 128 << 10
"""Some hundred tools, or two thousand properties, whose compiling takes half a second."""

# a fifth to a half of the library's own limits: a step of many waits for each of its grammars
_LIMITS = LLParserLimits(
    step_lexer_fuel=100_000,  # 7 ms
    step_max_items=20_000,  # 1 ms
    initial_lexer_fuel=500_000,
    max_lexer_states=20_000,  # 40 MB
    max_grammar_size=200_000,
    verbose_errors=False,
)


class GrammarError(ValueError):
    """A grammar that cannot be compiled, and why."""


class Matching:
    """Compiles grammars for one vocabulary. Safe to share between threads."""

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._tokenizer = tokenizer

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.vocab_size

    @classmethod
    def of(
        cls,
        vocab_size: int,
        token_bytes: Callable[[int], bytes],
        controls: Mapping[int, str],
        stop_token_ids: Collection[int],
    ) -> Matching:
        """Take a whole vocabulary, which is half a second's work for a released model's."""
        tokens = [
            controls[i].encode() if i in controls else token_bytes(i) for i in range(vocab_size)
        ]
        return cls._over(tokens, controls, stop_token_ids, slices=LLTokenizer.json_slices())

    @classmethod
    def of_bytes(
        cls, vocab_size: int, controls: Mapping[int, str], stop_token_ids: Collection[int]
    ) -> Matching:
        """Take single bytes for the vocabulary: enough to compile, and at once there."""
        tokens = [controls.get(i, "").encode() for i in range(vocab_size)]
        free = (i for i in range(vocab_size) if i not in controls)
        for byte in range(256):
            tokens[next(free)] = bytes([byte])
        return cls._over(tokens, controls, stop_token_ids, slices=[])

    @classmethod
    def _over(
        cls,
        tokens: list[bytes],
        controls: Mapping[int, str],
        stop_token_ids: Collection[int],
        *,
        slices: list[str],
    ) -> Matching:
        stops = sorted(stop_token_ids)
        vocabulary = _Tokens(tokens, sorted(controls), stops[0])
        # the library asks for its own wrapper's class, and looks at what it needs alone
        tokenizer = LLTokenizer(vocabulary, len(tokens), stops, slices)  # type: ignore[arg-type]
        return cls(tokenizer)

    def compiled(self, grammar: str) -> LLMatcher:
        """Return what reads one answer; raise `GrammarError`. Others run while this takes its time."""
        if len(grammar.encode()) > MAX_GRAMMAR_BYTES:
            raise GrammarError(f"is larger than {MAX_GRAMMAR_BYTES} bytes")
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise GrammarError(_said(matcher.get_error()))
        return matcher


class _Tokens:
    """A vocabulary in the form that the library takes."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(
        self, tokens: list[bytes], special_token_ids: list[int], eos_token_id: int
    ) -> None:
        self.tokens = tokens
        self.special_token_ids = special_token_ids
        self.eos_token_id = eos_token_id

    def __call__(self, text: str | bytes) -> NoReturn:
        raise AssertionError("grammars that force nothing need no tokenizing")


def _said(error: str) -> str:
    """Return what is wrong, without where in the grammar, which nobody has seen."""
    said = error.partition("failed to compile JSON schema: ")[2] or error
    return re.split(r"\n *[0-9]+ \|", said)[0].strip()[:500]
