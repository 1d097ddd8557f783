from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
from hypothesis import given, strategies as st

from support.text import GLM_NANO, KIMI_NANO, REAL_KIMI_TOKENIZER
from tenantry_recipes.nano.dims import glm_config, kimi_config
from tenantry_recipes.nano.vocabulary import build_glm, build_kimi
from tenantry_runtime.text import TextModel, load_text

CORPUS = [topics[name] for name in sorted(topics)[:60]] + ["key 12345 of 99", "12345"] * 20

SIZE = 1500


def build(family: str, directory: Path, corpus: list[str] = CORPUS) -> dict[str, Any]:
    make: Callable[..., dict[str, Any]] = build_kimi if family == "kimi" else build_glm
    return make(corpus, directory, SIZE)


def complete(family: str, directory: Path) -> dict[str, Any]:
    """Build a vocabulary and put beside it what else a text layer is loaded from."""
    ids = build(family, directory)
    config = kimi_config(ids) if family == "kimi" else glm_config(ids)
    (directory / "config.json").write_text(json.dumps(config))
    shutil.copy((KIMI_NANO if family == "kimi" else GLM_NANO) / "chat_template.jinja", directory)
    return ids


@pytest.fixture(scope="module", params=["kimi", "glm"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def built(family: str, tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    directory = tmp_path_factory.mktemp(family)
    complete(family, directory)
    return load_text(directory)


def test_the_vocabulary_loads_and_has_the_size_asked_for(built: TextModel) -> None:
    assert built.vocab_size == (SIZE if built.family == "kimi" else SIZE - 24)


@given(number=st.integers(0, 10**12))
def test_every_digit_is_a_token(built: TextModel, number: int) -> None:
    ids = built.tokenizer.encode(str(number))
    assert [built.tokenizer.token_bytes(i).decode() for i in ids] == list(str(number))


def test_no_token_joins_a_digit_to_anything(built: TextModel) -> None:
    tokens = [built.tokenizer.token_bytes(i) for i in range(built.vocab_size)]
    assert not [t for t in tokens if len(t) > 1 and any(c in b"0123456789" for c in t)]
    assert sorted(t for t in tokens if len(t) == 1) == [bytes([b]) for b in range(256)]


@given(text=st.text())
def test_every_text_comes_back(built: TextModel, text: str) -> None:
    ids = built.tokenizer.encode(text)
    assert b"".join(map(built.tokenizer.token_bytes, ids)).decode() == text


def test_words_of_the_corpus_are_few_tokens(built: TextModel) -> None:
    text = CORPUS[0]
    assert len(built.tokenizer.encode(text)) < len(text.encode()) / 2.5


def test_the_same_corpus_gives_the_same_files(family: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert build(family, tmp_path / "one") == build(family, tmp_path / "two")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_small_corpus_gives_a_small_vocabulary(family: str, tmp_path: Path) -> None:
    ids = build(family, tmp_path, ["one two one two"])
    assert 256 < ids["vocab_size"] < 256 + 256 + 20


def test_the_ids_returned_are_those_of_the_files(family: str, tmp_path: Path) -> None:
    ids = complete(family, tmp_path)
    names = load_text(tmp_path).tokenizer.controls.names
    eos = ids["eos_token_id"]
    if family == "kimi":
        assert names[ids["bos_token_id"]] == "[BOS]"
        assert names[eos] == "<|im_end|>"
        assert names[ids["pad_token_id"]] == "[PAD]"
    else:
        assert [names[i] for i in eos] == ["<|endoftext|>", "<|user|>", "<|observation|>"]
        assert names[ids["pad_token_id"]] == "<|endoftext|>"
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert (generation["eos_token_id"], generation["pad_token_id"]) == (eos, ids["pad_token_id"])


@pytest.mark.skipif(not REAL_KIMI_TOKENIZER.exists(), reason="the real tokenizer is not here")
def test_kimis_special_tokens_are_the_released_ones_at_the_released_offsets(
    tmp_path: Path,
) -> None:
    def by_offset(path: Path) -> dict[int, dict[str, Any]]:
        added = json.loads(path.read_text())["added_tokens_decoder"]
        first = min(map(int, added))
        return {int(token_id) - first: token for token_id, token in added.items()}

    build("kimi", tmp_path)
    assert by_offset(tmp_path / "tokenizer_config.json") == by_offset(
        REAL_KIMI_TOKENIZER / "tokenizer_config.json"
    )


@pytest.mark.parametrize(
    ("name", "offset", "is_hidden"),
    [
        ("<|endoftext|>", 0, True),
        ("[gMASK]", 2, True),
        ("<sop>", 4, True),
        ("<|system|>", 6, True),
        ("<|user|>", 7, True),
        ("<|assistant|>", 8, True),
        ("<|observation|>", 9, True),
        ("<think>", 21, False),
        ("</think>", 22, False),
        ("<tool_call>", 23, False),
        ("</tool_call>", 24, False),
        ("<tool_response>", 25, False),
        ("</tool_response>", 26, False),
        ("<arg_key>", 27, False),
        ("</arg_key>", 28, False),
        ("<arg_value>", 29, False),
        ("</arg_value>", 30, False),
    ],
)
def test_glms_special_tokens_have_the_released_offsets(
    name: str, offset: int, is_hidden: bool
) -> None:
    content = json.loads((GLM_NANO / "tokenizer.json").read_text())
    added = {token["content"]: token for token in content["added_tokens"]}
    assert len(added) == 36
    assert added[name]["id"] - added["<|endoftext|>"]["id"] == offset
    assert added[name]["special"] is is_hidden
