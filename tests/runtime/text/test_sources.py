"""What names the text side of a checkpoint: all that changes ids or prompts, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenantry_runtime.errors import CheckpointError
from tenantry_runtime.text import template_digest, tokenizer_digest
from tenantry_runtime.text.sources import read_template


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "tiktoken.model").write_bytes(b"ranks")
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    write_config(tmp_path)
    return tmp_path


def write_config(folder: Path, **fields: object) -> None:
    config = {"added_tokens_decoder": {"7": {"content": "<end>"}}, **fields}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["tiktoken.model", "tokenizer.json"])
def test_another_vocabulary_is_another_tokenizer(checkpoint: Path, name: str) -> None:
    before = tokenizer_digest(checkpoint)
    (checkpoint / name).write_bytes(b"other")

    assert tokenizer_digest(checkpoint) != before


def test_other_added_tokens_are_another_tokenizer(checkpoint: Path) -> None:
    before = tokenizer_digest(checkpoint)
    write_config(checkpoint, added_tokens_decoder={"8": {"content": "<end>"}})

    assert tokenizer_digest(checkpoint) != before


def test_what_other_programs_keep_in_its_configuration_does_not_matter(checkpoint: Path) -> None:
    before = tokenizer_digest(checkpoint)
    write_config(checkpoint, padding_side="left", chat_template="x")

    assert tokenizer_digest(checkpoint) == before


def test_a_template_has_one_digest_wherever_it_is(checkpoint: Path) -> None:
    in_its_file = template_digest(checkpoint)
    (checkpoint / "chat_template.jinja").unlink()
    write_config(checkpoint, chat_template="{{ messages }}")

    assert template_digest(checkpoint) == in_its_file
    write_config(checkpoint, chat_template="{{ messages }} ")
    assert template_digest(checkpoint) != in_its_file


def test_a_checkpoint_without_a_template_can_be_served_by_ids(checkpoint: Path) -> None:
    (checkpoint / "chat_template.jinja").unlink()

    assert template_digest(checkpoint) == ""
    with pytest.raises(CheckpointError, match="chat_template"):
        read_template(checkpoint)
