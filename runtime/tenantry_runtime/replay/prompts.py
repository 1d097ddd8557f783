"""Prompts of a trace's shape: equal blocks are equal tokens, others differ, and any run is repeatable.

| for | a token is | exact |
|---|---|---|
| a simulation | a byte: nothing reads it as text, and small integers cost no memory | yes |
| a running system | a word of `WORDS` with the space before it | nearly: see `text` |

A block that two requests have is the same in both. What the trace does not say is whether two
blocks of other ids begin alike; here they do not.
"""

from __future__ import annotations

from random import Random

from .trace import TraceRequest

# each is one token behind a space in the vocabularies of both nano models, which are the smallest we
# know; a larger vocabulary has such words whole too
WORDS = tuple(
    "the of and to in is it for on with as at by from that this have are was be not or an but we you "
    "he she their my your which when who how all can more one about into time year day people work "
    "water child place week number problem book word kind house hour game end member car city name "
    "team so up do go me them some only over new after use well even want any good than then now "
    "come think back first has had there".split()
)


class Prompts:
    """Makes the prompts of one replay."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def token_ids(self, request: TraceRequest) -> list[int]:
        """Return as many ids as the request's prompt has tokens."""
        size = request.block_tokens
        text = b"".join(self._random(block).randbytes(size) for block in request.blocks)
        return list(text[: request.num_prompt])

    def text(self, request: TraceRequest) -> str:
        """Return as many words as the prompt has tokens.

        The chat template adds its own tokens, and a vocabulary may split a word: a server counts a
        few more than the trace.
        """
        return "".join(
            self.block_text(block, num_tokens) for block, num_tokens in request.sized_blocks()
        )

    def block_text(self, block: int, num_tokens: int) -> str:
        """Return a block's first words, each behind a space: they tokenize alike wherever they stand."""
        words = self._random(block).choices(WORDS, k=num_tokens)
        return "".join(f" {word}" for word in words)

    def _random(self, block: int) -> Random:
        # of a string, not of a tuple: its hash is the same in every process
        return Random(f"{self._seed}:{block}")
