"""Equal blocks are equal tokens, others differ, and the same seed gives the same prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.replaying import a_request
from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.replay.prompts import Prompts
from tenantry_runtime.text.load import load_text

SIZE = 64


def test_equal_blocks_are_equal_token_ids_and_others_differ() -> None:
    prompts = Prompts()
    first = prompts.token_ids(a_request(0, 1, 2, 3).trace)
    second = prompts.token_ids(a_request(1, 1, 4, 3, 5).trace)
    assert len(first) == 2 * SIZE + 1
    assert first[:SIZE] == second[:SIZE]
    assert first[SIZE : 2 * SIZE] != second[SIZE : 2 * SIZE]
    assert first[2 * SIZE :] == second[2 * SIZE :][:1]


def test_a_seed_names_the_prompts() -> None:
    trace = a_request(0, 1, 2).trace
    assert Prompts(1).token_ids(trace) == Prompts(1).token_ids(trace)
    assert Prompts(1).token_ids(trace) != Prompts(2).token_ids(trace)
    assert Prompts(1).text(trace) != Prompts(2).text(trace)


def test_texts_have_as_many_words_as_the_trace_has_tokens() -> None:
    prompts = Prompts()
    text = prompts.text(a_request(0, 1, 2, 3).trace)
    assert len(text.split()) == 2 * SIZE + 1
    assert text == "".join(
        (prompts.block_text(1, SIZE), prompts.block_text(2, SIZE), prompts.block_text(3, 1))
    )


@pytest.mark.parametrize("model", ["kimi-k2.6", "glm-5.2"])
def test_a_block_is_as_many_tokens_as_words_wherever_it_stands(model: str) -> None:
    (entry,) = [entry for entry in load_catalog(None).entries if model in entry.id]
    tokenizer = load_text(Path(entry.directory)).tokenizer
    prompts = Prompts()
    blocks = [prompts.block_text(block, SIZE) for block in (1, 2)]
    encoded = [list(tokenizer.encode(text)) for text in blocks]
    assert [len(ids) for ids in encoded] == [SIZE, SIZE]
    assert list(tokenizer.encode("".join(blocks))) == encoded[0] + encoded[1]
