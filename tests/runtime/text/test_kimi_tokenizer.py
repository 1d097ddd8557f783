from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import regex
from hypothesis import given, strategies as st
from transformers.convert_slow_tokenizer import TikTokenConverter

from support.text import KIMI_NANO, REAL_KIMI_TOKENIZER, ids_of
from tenantry_runtime.errors import CheckpointError
from tenantry_runtime.text import Text, TextModel
from tenantry_runtime.text.kimi_tokenizer import MAX_RUN_CHARS, SPLIT_PATTERN, KimiTokenizer

needs_real_vocabulary = pytest.mark.skipif(
    not REAL_KIMI_TOKENIZER.exists(), reason="the real vocabulary is not beside the repository"
)

HARD_TEXTS = [
    "",
    "Hello, world!",
    "I'll say it's WE'RE don't",
    "camelCase HTTPServer ÀÉÎõü iPhone",
    "你好world世界123テスト한국어",
    "  leading\n\n\n  trailing  \t\r\n",
    "x=1234567;y=0.5e-10//comment",
    "e\u0301 zero\u200bwidth \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001d11e",
    "\x00\x1c\x85\u2028",
]


ALL_RANKS = b"".join(b"%s %d\n" % (base64.b64encode(bytes([n])), n) for n in range(256))


@pytest.fixture(scope="module")
def real() -> KimiTokenizer:
    return KimiTokenizer.load(REAL_KIMI_TOKENIZER)


@needs_real_vocabulary
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Hello, world!", [19180, 11, 2695, 0]),
        ("functions.get_weather:0", [41937, 1150, 21055, 2800, 25, 15]),
        ("1234567", [6694, 12972, 22]),
    ],
)
def test_text_gets_the_released_ids(real: KimiTokenizer, text: str, ids: list[int]) -> None:
    assert real.encode(text) == ids


@needs_real_vocabulary
def test_a_rendered_turn_gets_the_released_ids(real: KimiTokenizer) -> None:
    rendered = (
        "<|im_user|>user<|im_middle|>hi<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
    )
    ids: list[int] = []
    for part in real.controls.split(rendered):
        ids += real.encode(part.text) if isinstance(part, Text) else [part.id]
    assert ids == [163587, 2482, 163601, 9663, 163586, 163588, 69702, 163601, 163606]
    assert real.controls.names[163595] == "<|tool_calls_section_begin|>"
    assert real.vocab_size == 163840


@needs_real_vocabulary
def test_special_strings_are_ordinary_text_for_the_real_vocabulary(real: KimiTokenizer) -> None:
    for name in real.controls.ids:
        ids = real.encode(name)
        assert not real.controls.names.keys() & set(ids)
        assert b"".join(map(real.token_bytes, ids)).decode() == name


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_text_is_split_like_another_regex_engine_splits_it(kimi: TextModel, text: str) -> None:
    pieces = regex.findall(SPLIT_PATTERN, text, flags=regex.V1)
    assert "".join(pieces) == text
    piecewise = [token_id for piece in pieces for token_id in kimi.tokenizer.encode(piece)]
    assert kimi.tokenizer.encode(text) == piecewise


def test_ids_equal_those_of_the_same_ranks_in_another_library(
    kimi: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    # tiktoken's own loader caches local files by their path, and this one may have changed
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    ranks = str(KIMI_NANO / "tiktoken.model")
    converter: Any = TikTokenConverter  # untyped
    library = converter(ranks, pattern=SPLIT_PATTERN).converted()
    for text in HARD_TEXTS:
        assert kimi.tokenizer.encode(text) == library.encode(text, add_special_tokens=False).ids


@given(text=st.text())
def test_every_text_comes_back(kimi: TextModel, text: str) -> None:
    ids = kimi.tokenizer.encode(text)
    assert b"".join(map(kimi.tokenizer.token_bytes, ids)).decode() == text


def test_runs_are_cut_at_the_released_length(kimi: TextModel) -> None:
    # a run of one letter merges greedily, so a cut shows in the ids
    run, encode = "a" * MAX_RUN_CHARS, kimi.tokenizer.encode
    assert encode("b " + run + "aaa c") == encode("b " + run) + encode("aaa c")
    assert encode(" " * (MAX_RUN_CHARS + 1)) == encode(" " * MAX_RUN_CHARS) + encode(" ")


@pytest.mark.parametrize("char", ["a", " ", "\n", "!", "你", "\u0301", "<"])
def test_a_million_equal_characters_are_tokenized(kimi: TextModel, char: str) -> None:
    ids = kimi.tokenizer.encode(char * 1_000_000)
    assert b"".join(map(kimi.tokenizer.token_bytes, ids)).decode() == char * 1_000_000


def test_lone_surrogates_become_replacement_characters(kimi: TextModel) -> None:
    assert kimi.tokenizer.encode("a\ud800b") == kimi.tokenizer.encode("a\ufffdb")


def test_ids_that_stand_for_no_text_have_no_bytes(kimi: TextModel) -> None:
    assert kimi.tokenizer.token_bytes(ids_of(kimi, "<|im_end|>")[0]) == b""
    assert kimi.tokenizer.token_bytes(10**9) == b""


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"IQ== 0\nIg==\n", "line 2"),
        (b"IQ== 0\nI!== 1\n", "line 2"),
        (b"IQ== 0\n", "has no token for byte"),
        (ALL_RANKS + b"YWE= 0\n", "the same rank"),
    ],
)
def test_a_malformed_rank_file_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "tiktoken.model").write_bytes(content)
    with pytest.raises(CheckpointError, match=problem) as caught:
        KimiTokenizer.load(tmp_path)
    assert caught.value.file == str(tmp_path / "tiktoken.model")


@pytest.mark.parametrize(
    "config", ["{}", '{"added_tokens_decoder": {"0": {"content": "<x>"}}}', "[", "[]"]
)
def test_a_malformed_tokenizer_config_is_named(tmp_path: Path, config: str) -> None:
    (tmp_path / "tiktoken.model").write_bytes((KIMI_NANO / "tiktoken.model").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(CheckpointError) as caught:
        KimiTokenizer.load(tmp_path)
    assert caught.value.file == str(tmp_path / "tokenizer_config.json")
