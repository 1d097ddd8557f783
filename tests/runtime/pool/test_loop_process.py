"""The real engine's way into the step-loop process: what it is told, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from support.fake_node import PATIENCE_S, start_process
from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.engine.config import ModelSource
from tenantry_runtime.pool.loop_process import with_digests, with_vocab_limit
from tenantry_runtime.pool.node import UNUSABLE


def test_the_engine_is_kept_from_ids_that_have_no_text() -> None:
    (entry,) = (entry for entry in load_catalog().entries if "glm-5.2" in entry.aliases)
    tokenizer = json.loads((Path(entry.directory) / "tokenizer.json").read_text())
    ids = [*tokenizer["model"]["vocab"].values()]
    ids += [token["id"] for token in tokenizer["added_tokens"]]

    source = with_vocab_limit(ModelSource(id=entry.id, directory=entry.directory))

    assert source.vocab_limit == max(ids) + 1


def test_what_turns_text_into_ids_is_named() -> None:
    sources = {
        entry.id: with_digests(ModelSource(id=entry.id, directory=entry.directory))
        for entry in load_catalog().entries
    }

    digests = [(s.tokenizer_digest, s.template_digest) for s in sources.values()]
    assert all(len(digest) == 64 for pair in digests for digest in pair)
    assert len(set(digests)) == len(sources)


def test_a_limit_that_is_given_is_kept() -> None:
    source = ModelSource(id="any", directory="/none", vocab_limit=7)

    assert with_vocab_limit(source) == source


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("engine", "problem"),
    [
        ({"models": []}, "models must name one or more"),
        ({"models": [{"id": "a", "directory": "/none"}], "thread": 1}, "thread"),
        ({"models": [{"id": "a", "directory": "/no/such/folder"}]}, "/no/such/folder"),
    ],
    ids=["no model", "misspelled", "no folder"],
)
async def test_an_engine_that_cannot_be_built_ends_the_node_with_the_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], engine: dict[str, Any], problem: str
) -> None:
    file = tmp_path / "node.json"
    config = {"address": f"unix:{tmp_path / 'node.sock'}", "engine": engine}
    file.write_bytes(msgspec.json.encode(config))

    async with start_process("tenantry_runtime.pool", str(file)) as process:
        with anyio.fail_after(PATIENCE_S):
            assert await process.wait() == UNUSABLE

    said = capfd.readouterr().err
    assert problem in said
    assert "Traceback" not in said
