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
    path = directory / TEMPLATE_FILE
    inlined = None if path.exists() else _inlined_template(directory)
    if inlined is not None:
        return inlined, directory / CONFIG_FILE
    try:
        return read_bytes(path).decode(), path
    except UnicodeDecodeError as error:
        raise CheckpointError(str(path), None, f"is not UTF-8: {error}") from error


def _inlined_template(directory: Path) -> str | None:
    """Return the template where older releases carry it."""
    config_path = directory / CONFIG_FILE
    inlined = read_object(config_path).get("chat_template") if config_path.exists() else None
    return inlined if isinstance(inlined, str) else None


def template_digest(directory: Path) -> str:
    """Return SHA-256 of the chat template, wherever it is; empty where there is none.

    A node serves ids, and needs none.
    """
    if not (directory / TEMPLATE_FILE).exists() and _inlined_template(directory) is None:
        return ""
    source, _ = read_template(directory)
    return hashlib.sha256(source.encode()).hexdigest()


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
