"""GLM's tokenizer: `tokenizer.json`, byte-level BPE with added tokens."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from tenantry_runtime.errors import CheckpointError

from .controls import Controls
from .files import read_bytes
from .tokenizer import without_surrogates

TOKENIZER_FILE = "tokenizer.json"


class GlmTokenizer:
    """A byte-level BPE without its added tokens, and these beside it."""

    def __init__(self, full: tokenizers.Tokenizer) -> None:
        self.controls = Controls(
            {token.content: token_id for token_id, token in full.get_added_tokens_decoder().items()}
        )
        base: dict[str, int] = full.get_vocab(with_added_tokens=False)
        self._bytes = {
            token_id: _bytes_of(token)
            for token, token_id in base.items()
            if token_id not in self.controls
        }
        self.vocab_size = max(*self._bytes, *self.controls.names) + 1
        # the added tokens belong to `full`, not to its model: without them it cannot find them
        self._plain = tokenizers.Tokenizer(full.model)
        if full.normalizer is not None:
            self._plain.normalizer = full.normalizer
        if full.pre_tokenizer is not None:
            self._plain.pre_tokenizer = full.pre_tokenizer
        # an added token that is also in the model's vocabulary could be built by merges
        for name, token_id in self.controls.ids.items():
            if token_id in self.encode(name):
                raise ValueError(f"ordinary text becomes the added token {name!r}")
        # the library remembers words, and so whose words one uses could be told by the time that saves
        self._plain.model._clear_cache()
        self._plain.model._resize_cache(0)

    @classmethod
    def load(cls, directory: Path) -> GlmTokenizer:
        """Read `tokenizer.json`; raises `CheckpointError`."""
        path = directory / TOKENIZER_FILE
        source = read_bytes(path)
        try:
            full = tokenizers.Tokenizer.from_buffer(source)
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(str(path), None, f"is not a tokenizer: {error}") from error
        try:
            return cls(full)
        except (KeyError, TypeError, ValueError) as error:
            problem = f"is not a byte-level vocabulary with added tokens: {error}"
            raise CheckpointError(str(path), None, problem) from error

    def encode(self, text: str) -> list[int]:
        """Tokenize ordinary text. The result never contains a control token."""
        encoding = self._plain.encode(without_surrogates(text), add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """Return what a token stands for: b"" for control tokens and ids outside the vocabulary."""
        return self._bytes.get(token_id, b"")


def byte_letters() -> dict[int, str]:
    """Map each byte to the printable letter that stands for it in a byte-level vocabulary.

    Printable Latin-1 bytes stand for themselves; the others get the letters from U+0100 on, in
    order. The dictionary's order is that of the ids in such vocabularies.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in letters)
    return letters | {byte: chr(0x100 + index) for index, byte in enumerate(others)}


_BYTES = {letter: byte for byte, letter in byte_letters().items()}


def _bytes_of(token: str) -> bytes:
    return bytes(_BYTES[letter] for letter in token)
