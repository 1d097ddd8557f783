"""What the text layer needs of a tokenizer."""

from __future__ import annotations

from typing import Protocol

from .controls import Controls


class Tokenizer(Protocol):
    """A vocabulary of byte strings, and control tokens beside it."""

    controls: Controls
    vocab_size: int
    """One more than the largest id; a model's logits at and past it mean nothing."""

    def encode(self, text: str) -> list[int]:
        """Tokenize ordinary text. The result never contains a control token."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Return what a token stands for: b"" for control tokens and ids outside the vocabulary."""
        ...


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8 form; pairs become the character they mean."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
