from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, strategies as st

from support.text import GLM_NANO, ids_of
from tenantry_runtime.errors import CheckpointError
from tenantry_runtime.text import TextModel
from tenantry_runtime.text.glm_tokenizer import GlmTokenizer

# texts without a control string, for which the library alone must agree
texts = st.text().filter(lambda text: "<" not in text and "[" not in text and "/" not in text)


@pytest.fixture(scope="module")
def library() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(GLM_NANO / "tokenizer.json"))


@given(text=texts)
def test_ids_and_bytes_equal_the_librarys(
    glm: TextModel, library: tokenizers.Tokenizer, text: str
) -> None:
    ids = glm.tokenizer.encode(text)
    assert ids == library.encode(text, add_special_tokens=False).ids
    assert b"".join(map(glm.tokenizer.token_bytes, ids)).decode() == text == library.decode(ids)


def test_control_strings_get_the_librarys_ids(
    glm: TextModel, library: tokenizers.Tokenizer
) -> None:
    rendered = "[gMASK]<sop><|user|>Hi<|assistant|><think></think>a<tool_call>f</tool_call>"
    assert ids_of(glm, rendered) == library.encode(rendered, add_special_tokens=False).ids


def test_special_strings_are_ordinary_text(glm: TextModel) -> None:
    for name in glm.tokenizer.controls.ids:
        ids = glm.tokenizer.encode(name)
        assert not glm.tokenizer.controls.names.keys() & set(ids)
        assert b"".join(map(glm.tokenizer.token_bytes, ids)).decode() == name


@pytest.mark.parametrize("char", ["a", " ", "\n", "!", "你"])
def test_a_hundred_thousand_equal_characters_are_tokenized(glm: TextModel, char: str) -> None:
    ids = glm.tokenizer.encode(char * 100_000)
    assert b"".join(map(glm.tokenizer.token_bytes, ids)).decode() == char * 100_000


def test_lone_surrogates_become_replacement_characters(glm: TextModel) -> None:
    assert glm.tokenizer.encode("a\ud800b") == glm.tokenizer.encode("a\ufffdb")


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="is not a tokenizer") as caught:
        GlmTokenizer.load(tmp_path)
    assert caught.value.file == str(tmp_path / "tokenizer.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be read"):
        GlmTokenizer.load(tmp_path)


def test_a_vocabulary_in_which_text_becomes_a_control_token_is_refused(
    glm: TextModel, tmp_path: Path
) -> None:
    content = json.loads((GLM_NANO / "tokenizer.json").read_text())
    word, word_id = next(
        (word, word_id)
        for word, word_id in content["model"]["vocab"].items()
        if len(word) > 2 and glm.tokenizer.encode(word) == [word_id]
    )
    added = {**content["added_tokens"][0], "id": word_id, "content": word}
    content["added_tokens"].append(added)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=f"ordinary text becomes the added token '{word}'"):
        GlmTokenizer.load(tmp_path)


def test_a_vocabulary_that_is_not_byte_level_is_refused(tmp_path: Path) -> None:
    content = json.loads((GLM_NANO / "tokenizer.json").read_text())
    content["model"]["vocab"]["▁word"] = 100_000
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="byte-level"):
        GlmTokenizer.load(tmp_path)
