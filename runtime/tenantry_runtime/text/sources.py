"""The files that a checkpoint's text side is made of, and the digests that name them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from tenantry_runtime.errors import CheckpointError

from .files import read_bytes, read_object
from .glm_tokenizer import TOKENIZER_FILE
from .kimi_tokenizer import CONFIG_FILE, RANKS_FILE

TEMPLATE_FILE = "chat_template.jinja"

_VOCABULARY_FILES = (RANKS_FILE, TOKENIZER_FILE)
_ADDED_TOKENS = "added_tokens_decoder"


def read_template(directory: Path) -> tuple[str, Path]:
    """Return the chat template and the file that has it; raise `CheckpointError` if there is none."""
    found = _find_template(directory)
    if found is None:
        raise CheckpointError(str(directory / TEMPLATE_FILE), None, "no such file")
    return found


def template_digest(directory: Path) -> str:
    """Return SHA-256 of the chat template, wherever it is; empty where there is none.

    A node serves ids, and needs none.
    """
    found = _find_template(directory)
    return "" if found is None else hashlib.sha256(found[0].encode()).hexdigest()


def _find_template(directory: Path) -> tuple[str, Path] | None:
    path = directory / TEMPLATE_FILE
    if path.exists():
        try:
            return read_bytes(path).decode(), path
        except UnicodeDecodeError as error:
            raise CheckpointError(str(path), None, f"is not UTF-8: {error}") from error
    # older releases carry it here
    path = directory / CONFIG_FILE
    inlined = read_object(path).get("chat_template") if path.exists() else None
    return (inlined, path) if isinstance(inlined, str) else None


def tokenizer_digest(directory: Path) -> str:
    """Return SHA-256 of what tells ids from text: the vocabulary's files and the added tokens."""
    digest = hashlib.sha256()
    for name in _VOCABULARY_FILES:
        path = directory / name
        if path.exists():
            content = read_bytes(path)
            digest.update(f"{name}:{len(content)}:".encode())
            digest.update(content)
    config_path = directory / CONFIG_FILE
    if config_path.exists():
        # the rest of that file is the template, and what other programs keep there
        added = read_object(config_path).get(_ADDED_TOKENS)
        digest.update(msgspec.json.encode(added, order="deterministic"))
    return digest.hexdigest()
