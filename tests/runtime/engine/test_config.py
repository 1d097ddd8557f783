"""The engine's configuration: JSON in, every bad value refused by name."""

from __future__ import annotations

import msgspec
import pytest

from tenantry_runtime.engine.config import NodeConfig

MODELS = '"models": [{"id": "@cf/moonshotai/kimi-k2.6", "directory": "/models/kimi"}]'


def test_only_the_models_must_be_named() -> None:
    config = msgspec.json.decode("{" + MODELS + "}", type=NodeConfig)
    assert config.models[0].id == "@cf/moonshotai/kimi-k2.6"
    assert not config.deterministic


def model(fields: str) -> str:
    return '"models": [{"id": "m", "directory": "x", ' + fields + "}]"


@pytest.mark.parametrize(
    ("fields", "pools", "formats"),
    [
        ('"vocab_limit": 5', [("prefill", "decode")], ("bf16", "bf16")),
        ('"prefill_cache": "bf16"', [("prefill", "decode")], ("bf16", "bf16")),
        ('"separate_pools": true', [("prefill",), ("decode",)], ("bf16", "bf16")),
        ('"cache": "fp8"', [("prefill", "decode")], ("fp8", "fp8")),
        ('"cache": "fp8", "prefill_cache": "bf16"', [("prefill",), ("decode",)], ("bf16", "fp8")),
        ('"phases": ["prefill"]', [("prefill",)], ("bf16", "bf16")),
        ('"phases": ["decode"], "cache": "fp8"', [("decode",)], ("fp8", "fp8")),
    ],
)
def test_members_share_a_pool_where_they_keep_their_pages_alike(
    fields: str, pools: list[tuple[str, ...]], formats: tuple[str, str]
) -> None:
    config = msgspec.json.decode("{" + model(fields) + "}", type=NodeConfig)
    [source] = config.models
    assert list(config.pools_of(source)) == pools
    assert (config.cache_of(source, "prefill"), config.cache_of(source, "decode")) == formats


@pytest.mark.parametrize(
    ("fields", "dtype", "fraction", "turn_bytes"),
    [
        ("", "float32", None, 4 << 20),
        (', "memory_fraction": 0.5, "dtype": "bfloat16"', "bfloat16", 0.5, 4 << 20),
        (', "device": "cuda"', "bfloat16", 0.831, 64 << 20),
        (', "device": "cuda:1", "memory_fraction": 0.9', "bfloat16", 0.9, 64 << 20),
        (', "device": "cuda", "cache_bytes": 1000', "bfloat16", None, 64 << 20),
        (', "device": "cuda", "num_pages": 7, "handoff_bytes": 9', "bfloat16", None, 9),
    ],
)
def test_what_is_left_out_is_as_is_fit_for_the_device(
    fields: str, dtype: str, fraction: float | None, turn_bytes: int
) -> None:
    config = msgspec.json.decode("{" + MODELS + fields + "}", type=NodeConfig)
    assert config.compute_dtype == dtype
    assert (config.filled_fraction, config.turn_bytes) == (fraction, turn_bytes)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ('"models": []', "models"),
        ('"models": [{"id": "a", "directory": "x"}, {"id": "a", "directory": "y"}]', "models"),
        (MODELS + ', "max_batch": 0', "max_batch must be at least 1, not 0"),
        (MODELS + ', "chunk_tokens": -4', "chunk_tokens must be at least 1, not -4"),
        (MODELS + ', "num_pages": 0', "num_pages must be at least 1, not 0"),
        (MODELS + ', "cache_bytes": 0', "cache_bytes must be at least 1, not 0"),
        (MODELS + ', "threads": 0', "threads must be at least 1, not 0"),
        (MODELS + ', "max_waiting": 0', "max_waiting must be at least 1, not 0"),
        (MODELS + ', "max_batch": 70000', "must be at most 61438, not 70000"),
        (MODELS + ', "num_pages": 8, "cache_bytes": 9', "give one of num_pages, cache_bytes"),
        (MODELS + ', "num_pages": 8, "memory_fraction": 0.5', "give one of num_pages"),
        (MODELS + ', "cache_bytes": 8, "memory_fraction": 0.5', "give one of num_pages"),
        (MODELS + ', "memory_fraction": 0', "memory_fraction must be above 0 and at most 1, not 0"),
        (MODELS + ', "memory_fraction": 1.5', "memory_fraction must be above 0 and at most 1"),
        (MODELS + ', "deterministic": true, "threads": 2', "threads to be 1 on a CPU, not 2"),
        (MODELS + ', "handoff_bytes": 0', "handoff_bytes must be at least 1, not 0"),
        (model('"phases": []'), "phases of 'm' must name prefill, decode or both"),
        (
            model('"phases": ["decode", "decode"]'),
            "phases of 'm' must name prefill, decode or both",
        ),
        (model('"phases": ["train"]'), "train"),
        (model('"phases": ["decode"], "prefill_cache": "bf16"'), "prefill_cache of 'm' needs"),
        (MODELS + ', "dtype": "float16"', "float16"),
        (MODELS + ', "device": "gpu"', "device must be cpu, cuda or cuda:N, not 'gpu'"),
        (MODELS + ', "device": "cuda:"', "device must be cpu, cuda or cuda:N, not 'cuda:'"),
        (MODELS + ', "device": "cuda", "dtype": "float32"', "dtype must be bfloat16 on a GPU"),
        (MODELS + ', "pages": 8', "pages"),
        ('"models": [{"id": "a"}]', "directory"),
    ],
)
def test_a_bad_value_is_refused_by_name(fields: str, problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.json.decode("{" + fields + "}", type=NodeConfig)
