"""Where an answer is in its grammar.

A `Guide` is a function of the grammar and the tokens generated so far, and of nothing else: a
sequence that is preempted, handed over or begun again elsewhere goes on as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Sequence as ListLike
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from tenantry_runtime.pool.messages import Submit

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from tenantry_runtime.text.matching import Matching


class Guide:
    """Follows one sequence's answer. Whoever has it is alone with it."""

    __slots__ = ("matcher", "problem", "vocab_size")

    def __init__(self, matcher: LLMatcher, vocab_size: int, generated: ListLike[int] = ()) -> None:
        self.matcher = matcher
        self.vocab_size = vocab_size
        self.problem: str | None = None
        """Why nothing may come next, since it went wrong."""
        if generated:
            matcher.consume_tokens(list(generated))
        self.check()

    def advance(self, token_id: int) -> None:
        """Take a token that was generated."""
        self.matcher.consume_token(token_id)
        self.check()

    def check(self) -> None:
        """See whether what was asked last has gone wrong, which the library tells nobody."""
        if self.problem is None and self.matcher.is_error():
            self.problem = f"the answer's grammar: {self.matcher.get_error()[:200]}"


class Guides:
    """Makes guides for one model's answers. Its vocabulary is read when the first is asked for."""

    def __init__(self, directory: Path) -> None:
        """`directory`: of the checkpoint."""
        self._directory = directory
        self._lock = Lock()
        self._matching: Matching | None = None

    def guide(self, submit: Submit) -> Guide:
        """Compile a sequence's grammar and bring it to where its answer is.

        Takes long, and lets other threads run meanwhile. Raises what is wrong with the grammar, or
        with the checkpoint's vocabulary.
        """
        assert submit.constraint is not None
        matching = self._vocabulary()
        matcher = matching.compiled(submit.constraint.lark)
        num_prompt = len(submit.token_ids) - submit.num_generated
        guide = Guide(matcher, matching.vocab_size, submit.token_ids[num_prompt:])
        # the first time takes the longest, and is spent here rather than in a step
        matcher.compute_bitmask()
        guide.check()
        return guide

    def _vocabulary(self) -> Matching:
        with self._lock:
            if self._matching is None:
                # those whose answers are free need neither
                from tenantry_runtime.text import load_text
                from tenantry_runtime.text.matching import Matching

                text = load_text(self._directory)
                tokenizer = text.tokenizer
                self._matching = Matching.of(
                    tokenizer.vocab_size,
                    tokenizer.token_bytes,
                    tokenizer.controls.names,
                    text.stop_token_ids,
                )
            return self._matching
