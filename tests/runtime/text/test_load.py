from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.text import GLM_NANO, KIMI_NANO, user, written
from tenantry_runtime.core import RenderOptions
from tenantry_runtime.errors import CheckpointError
from tenantry_runtime.text import Control, SamplingDefaults, Text, TextModel, load_text
from tenantry_runtime.text.load import random_call_id

SMALL_FILES = [
    *("config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja"),
    *("tiktoken.model", "tokenizer.json"),
]


@pytest.fixture(params=[KIMI_NANO, GLM_NANO], ids=["kimi", "glm"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a checkpoint's small files, to be spoiled."""
    for name in SMALL_FILES:
        if (request.param / name).exists():
            shutil.copy(request.param / name, tmp_path)
    return tmp_path


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def refused(directory: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load_text(directory)
    return caught.value


def test_a_checkpoint_names_its_family_and_stop_tokens(kimi: TextModel, glm: TextModel) -> None:
    names = kimi.tokenizer.controls.names
    assert kimi.family == "kimi"
    assert {names[i] for i in kimi.stop_token_ids} == {"<|im_end|>", "[EOS]"}
    names = glm.tokenizer.controls.names
    assert glm.family == "glm"
    assert {names[i] for i in glm.stop_token_ids} == {
        "<|endoftext|>",
        "<|user|>",
        "<|observation|>",
    }


def test_padding_ids_are_outside_the_vocabulary(glm: TextModel) -> None:
    padded: int = json.loads((GLM_NANO / "config.json").read_text())["vocab_size"]
    assert glm.vocab_size == padded - 24


def test_stop_tokens_of_both_configs_count(directory: Path) -> None:
    model = load_text(directory)
    extra = sorted(model.tokenizer.controls.names.keys() - model.stop_token_ids)[:2]
    edit(directory / "config.json", lambda c: c.update(eos_token_id=extra[0]))
    edit(directory / "generation_config.json", lambda c: c.update(eos_token_id=[extra[1]]))
    assert load_text(directory).stop_token_ids == model.stop_token_ids | set(extra)


def test_sampling_defaults_come_from_the_generation_config(directory: Path) -> None:
    edit(directory / "generation_config.json", lambda c: c.update(temperature=0.25, top_p=1))
    assert load_text(directory).sampling_defaults == SamplingDefaults(temperature=0.25, top_p=1.0)


def test_sampling_defaults_without_one_are_the_familys(directory: Path) -> None:
    (directory / "generation_config.json").unlink()
    assert load_text(directory).sampling_defaults == SamplingDefaults(temperature=1.0, top_p=0.95)


def test_an_older_release_carries_its_template_in_the_tokenizer_config(directory: Path) -> None:
    (directory / "chat_template.jinja").unlink()
    edit(
        directory / "tokenizer_config.json",
        lambda c: c.update(chat_template="{{ messages[0].content }}!"),
    )
    model = load_text(directory)
    assert written(model, model.render([user("Hi")], (), RenderOptions())) == "Hi!"


@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja"])
def test_a_missing_file_is_named(directory: Path, name: str) -> None:
    (directory / name).unlink()
    assert refused(directory).file == str(directory / name)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_file_that_is_no_json_object_is_named(directory: Path, name: str) -> None:
    for content in ("", "[]", "{", '{"a": "\ud800"}'):
        (directory / name).write_bytes(content.encode(errors="surrogatepass"))
        assert refused(directory).file == str(directory / name)


@pytest.mark.parametrize("model_type", ["llama", None, 5, ["kimi_k2"]])
def test_an_unknown_model_type_is_refused_with_those_known(
    directory: Path, model_type: object
) -> None:
    edit(directory / "config.json", lambda c: c.update(model_type=model_type))
    error = refused(directory)
    assert f"model_type {model_type!r} is not one of glm4_moe_lite, glm_moe_dsa" in str(error)
    assert error.file == str(directory / "config.json")


def test_a_model_with_fewer_ids_than_its_tokenizer_is_refused(directory: Path) -> None:
    def shrink(config: dict[str, Any]) -> None:
        config.get("text_config", config)["vocab_size"] = 1000

    edit(directory / "config.json", shrink)
    assert "vocab_size 1000 is less than the tokenizer's" in str(refused(directory))


def test_a_stop_token_that_is_ordinary_text_is_refused(directory: Path) -> None:
    edit(directory / "generation_config.json", lambda c: c.update(eos_token_id=[300]))
    assert "eos_token_id 300 is no added token" in str(refused(directory))


@pytest.mark.parametrize("temperature", ["hot", True, -1])
def test_a_default_that_is_no_number_is_refused(directory: Path, temperature: object) -> None:
    edit(directory / "generation_config.json", lambda c: c.update(temperature=temperature))
    assert f"temperature {temperature!r}" in str(refused(directory))


def test_a_broken_template_is_named_with_its_line(directory: Path) -> None:
    path = directory / "chat_template.jinja"
    path.write_text("{{ a }}\n{% if %}")
    error = refused(directory)
    assert error.file == str(path)
    assert "line 2" in str(error)
    path.write_bytes(b"\xff")
    assert "is not UTF-8" in str(refused(directory))


def test_a_tokenizer_without_the_token_that_ends_turns_is_refused(tmp_path: Path) -> None:
    for name in SMALL_FILES:
        if (KIMI_NANO / name).exists():
            shutil.copy(KIMI_NANO / name, tmp_path)

    def rename(config: dict[str, Any]) -> None:
        for token in config["added_tokens_decoder"].values():
            token["content"] = token["content"].replace("<|im_end|>", "<|other|>")

    edit(tmp_path / "tokenizer_config.json", rename)
    assert "lacks the added token '<|im_end|>'" in str(refused(tmp_path))


@pytest.mark.parametrize("described", ["[EOS]", {"content": "[EOS]", "lstrip": False}])
def test_a_template_knows_the_special_tokens_of_the_configuration(
    tmp_path: Path, described: object
) -> None:
    for name in SMALL_FILES:
        if (KIMI_NANO / name).exists():
            shutil.copy(KIMI_NANO / name, tmp_path)
    edit(tmp_path / "tokenizer_config.json", lambda c: c.update(eos_token=described))
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}{{ eos_token }}")
    kimi = load_text(tmp_path)

    prompt = kimi.render([user("[EOS]")], (), RenderOptions())

    # the template's is a control token, the user's is text
    assert prompt.parts == (Text("[EOS]"), Control(kimi.tokenizer.controls.ids["[EOS]"]))


def test_call_ids_differ_by_default() -> None:
    ids = {random_call_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(call_id.startswith("call_") for call_id in ids)


def test_the_length_of_a_text_is_its_number_of_tokens(model: TextModel) -> None:
    assert model.length("") == 0
    assert model.length("one two") == len(model.tokenizer.encode("one two"))
