"""Kimi's tokenizer: byte-pair ranks in `tiktoken.model`, control tokens in `tokenizer_config.json`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tiktoken

from tenantry_runtime.errors import CheckpointError

from .controls import Controls
from .files import read_bytes, read_object
from .tokenizer import without_surrogates

RANKS_FILE = "tiktoken.model"
CONFIG_FILE = "tokenizer_config.json"

# Words are cut where case changes from lower to upper, keep one leading sign or space and an English
# contraction; Han runs are pieces of their own, so both letter classes leave Han out.
_HEAD = r"[^\r\n\p{L}\p{N}]?"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
SPLIT_PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        _HEAD + _UPPER + "*" + _LOWER + "+" + _CONTRACTION,
        _HEAD + _UPPER + "+" + _LOWER + "*" + _CONTRACTION,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

# Both limits are the released tokenizer's: a longer run overflows the splitter's stack, and where a
# text is cut decides its tokens. The first counts from the last control token here, from the start of
# the prompt there.
MAX_PIECE_CHARS = 400_000
MAX_RUN_CHARS = 25_000
_LONG_RUN = re.compile(rf"\s{{{MAX_RUN_CHARS + 1},}}|\S{{{MAX_RUN_CHARS + 1},}}")


class KimiTokenizer:
    """tiktoken ranks plus control tokens that only a template can produce."""

    def __init__(self, ranks: dict[bytes, int], controls: Controls) -> None:
        self.controls = controls
        self.vocab_size = max(*ranks.values(), *controls.names) + 1
        self._bytes = {rank: token for token, rank in ranks.items()}
        # no special tokens here: what tiktoken does not know, it cannot find in user text
        self._encoding = tiktoken.Encoding(
            "kimi", pat_str=SPLIT_PATTERN, mergeable_ranks=ranks, special_tokens={}
        )

    @classmethod
    def load(cls, directory: Path) -> KimiTokenizer:
        """Read both files; raises `CheckpointError`."""
        ranks = _read_ranks(directory / RANKS_FILE)
        config_path = directory / CONFIG_FILE
        controls = _read_controls(config_path)
        if shared := sorted(controls.names.keys() & set(ranks.values())):
            raise CheckpointError(
                str(config_path), None, f"added token {shared[0]} has the id of a rank"
            )
        return cls(ranks, controls)

    def encode(self, text: str) -> list[int]:
        """Tokenize ordinary text. The result never contains a control token."""
        ids: list[int] = []
        for piece in _pieces(without_surrogates(text)):
            ids.extend(self._encoding.encode_ordinary(piece))
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """Return what a token stands for: b"" for control tokens and ids outside the vocabulary."""
        return self._bytes.get(token_id, b"")


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), MAX_PIECE_CHARS):
        piece = text[start : start + MAX_PIECE_CHARS]
        cut = 0
        for run in _LONG_RUN.finditer(piece):
            for end in range(run.start() + MAX_RUN_CHARS, run.end(), MAX_RUN_CHARS):
                yield piece[cut:end]
                cut = end
        yield piece[cut:]


def _read_ranks(path: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            problem = f"line {number} is not a base64 token and its rank: {line[:80]!r}"
            raise CheckpointError(str(path), None, problem) from error
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise CheckpointError(str(path), None, f"has no token for byte {missing[0]}")
    if len(set(ranks.values())) != len(ranks):
        raise CheckpointError(str(path), None, "gives two tokens the same rank")
    return ranks


def _read_controls(path: Path) -> Controls:
    added: Any = read_object(path).get("added_tokens_decoder")
    try:
        ids = {str(token["content"]): int(token_id) for token_id, token in added.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(str(path), None, "added_tokens_decoder is malformed") from error
    if not ids or "" in ids:
        raise CheckpointError(str(path), None, "added_tokens_decoder lacks tokens or names")
    return Controls(ids)
