from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from support.tiny_checkpoints import TinyCheckpoint, build
from tenantry_recipes.bench.contender import (
    BenchPrompt,
    DtypeName,
    EngineSettings,
    TransformersSettings,
)
from tenantry_recipes.bench.engine_side import EngineContender
from tenantry_recipes.bench.export import export_checkpoint
from tenantry_recipes.bench.transformers_side import TransformersContender
from tenantry_recipes.bench.weights import WeightCounts
from tenantry_recipes.nano.export import write_checkpoint
from tenantry_recipes.nano.models import NANO_MODELS
from tenantry_recipes.nano.parameters import ParameterSource
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.core import RenderOptions
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.models.loader import load_config

TINY = ("kimi_k2", "kimi_k25", "glm52", "glm47_flash")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module", params=TINY)
def tiny(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TinyCheckpoint:
    return build(request.param, tmp_path_factory.mktemp(request.param) / "checkpoint")


@pytest.fixture(scope="module")
def tiny_export(tiny: TinyCheckpoint) -> Path:
    target = tiny.directory.with_name("export")
    export_checkpoint(tiny.directory, target)
    return target


@pytest.fixture(scope="module", params=sorted(NANO_MODELS))
def quantized(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, ParameterSource]:
    """A nano model with random weights, in its stored formats, and the weights before rounding."""
    model = NANO_MODELS[request.param]()
    source = ParameterSource(model.family, seed=3)
    Decoder(model.decoder_config, source)
    directory = tmp_path_factory.mktemp(request.param)
    write_checkpoint(directory, model.family, model.config, source)
    return directory, source


def prompts_of(ids: list[list[int]]) -> list[BenchPrompt]:
    return [
        BenchPrompt(token_ids=tuple(each), messages=(), options=RenderOptions()) for each in ids
    ]


def engine_tokens(
    directory: Path, prompts: list[BenchPrompt], num_tokens: int, *, dtype: DtypeName
) -> tuple[tuple[int, ...], ...]:
    cache: CacheName = "float32" if dtype == "float32" else "bf16"
    settings = EngineSettings(directory=directory, dtype=dtype, cache=cache, threads=1)
    engine = EngineContender.load(settings)
    try:
        return engine.generate(prompts, num_tokens).token_ids
    finally:
        engine.close()


def transformers_tokens(
    directory: Path, prompts: list[BenchPrompt], num_tokens: int
) -> tuple[tuple[int, ...], ...]:
    settings = TransformersSettings(directory=directory, dtype="float32", threads=1)
    run = TransformersContender.load(settings).generate(prompts, num_tokens)
    assert [len(times) for times in run.token_s] == [num_tokens] * len(prompts)
    return run.token_ids


def test_the_export_answers_as_the_checkpoint_did_before(
    tiny: TinyCheckpoint, tiny_export: Path
) -> None:
    prompts = prompts_of([answer.token_ids.tolist() for answer in tiny.answers])
    expected = tuple(tuple(answer.greedy) for answer in tiny.answers)

    assert transformers_tokens(tiny_export, prompts, len(expected[0])) == expected
    assert engine_tokens(tiny_export, prompts, len(expected[0]), dtype="float32") == expected


def test_an_export_of_stored_formats_answers_as_the_engine_does(
    quantized: tuple[Path, ParameterSource], tmp_path: Path
) -> None:
    directory, _ = quantized
    export_checkpoint(directory, tmp_path)
    generator = torch.Generator().manual_seed(5)
    ids = [torch.randint(4000, (n,), generator=generator).tolist() for n in (40, 23, 9)]
    prompts = prompts_of(ids)

    assert engine_tokens(tmp_path, prompts, 6, dtype="float32") == transformers_tokens(
        tmp_path, prompts, 6
    )
    # both are rounded to BF16 here
    assert engine_tokens(tmp_path, prompts, 6, dtype="bfloat16") == engine_tokens(
        directory, prompts, 6, dtype="bfloat16"
    )


def test_an_export_has_the_decoder_weights_in_bf16_and_nothing_else(
    quantized: tuple[Path, ParameterSource], tmp_path: Path
) -> None:
    directory, source = quantized
    export_checkpoint(directory, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    num_layers = load_config(directory).num_layers
    trained = {
        name: weight
        for name, weight in source.parameters.items()
        if f"layers.{num_layers}." not in name
    }
    biases = {name for name in source.router_bias if f"layers.{num_layers}." not in name}

    assert tensors.keys() == trained.keys() | biases
    for name, weight in trained.items():
        assert tensors[name].dtype == torch.bfloat16
        # INT4 in groups of 32 is the coarsest format: about 9 percent on Gaussian weights
        assert (tensors[name].float() - weight).norm() <= 0.12 * weight.norm(), name
    for name in biases:
        assert torch.equal(tensors[name], source.router_bias[name])


def test_the_configuration_says_what_transformers_is_to_build(
    quantized: tuple[Path, ParameterSource], tmp_path: Path
) -> None:
    directory, _ = quantized
    export_checkpoint(directory, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())

    assert (config["model_type"], config["architectures"]) in [
        ("deepseek_v3", ["DeepseekV3ForCausalLM"]),
        ("glm_moe_dsa", ["GlmMoeDsaForCausalLM"]),
    ]
    assert not config.keys() & {"quantization_config", "text_config"}
    assert config["num_nextn_predict_layers"] == 0


def test_weights_are_counted_by_when_they_are_read(
    quantized: tuple[Path, ParameterSource], tmp_path: Path
) -> None:
    directory, source = quantized
    export_checkpoint(directory, tmp_path)
    config = load_config(directory)
    counts = WeightCounts.of(tmp_path, config.moe)
    moe = config.moe
    num_moe_layers = config.num_layers - sum(config.is_dense_N)

    assert counts.num_expert == (
        num_moe_layers * moe.num_experts * 3 * config.hidden_dim * moe.intermediate_dim
    )
    all_but_mtp = sum(
        weight.numel()
        for name, weight in (source.parameters | source.router_bias).items()
        if f"layers.{config.num_layers}." not in name
    )
    embedding = config.vocab_size * config.hidden_dim
    assert counts.num_always == all_but_mtp - embedding - counts.num_expert
