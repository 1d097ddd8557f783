"""A model whose weights stay as stored is the model of its dequantized weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from support.mtp_checkpoints import drafts, mtp_copy
from support.paged_batch import PagedRun, PagedSequence
from support.quantized_copies import (
    FILE,
    Copy,
    Tensors,
    dequantized_copy,
    fp8_copy,
    int4_copy,
    rewritten,
)
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_runtime.models import loader
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.models.linear import DenseExperts, DenseLinear
from tenantry_runtime.models.loader import load_model
from tenantry_runtime.models.stored import StoredExperts, StoredLinear

Checkpoints = Callable[[str], TinyCheckpoint]

CHECKPOINTS = Path(loader.__file__).parents[1] / "checkpoints"
NANO = ["kimi-k2.6-nano", "glm-5.2-nano"]
# INT4 experts and BF16 rest; whole blocks, partial blocks, blocks across heads
FILES: list[tuple[str, Copy]] = [
    ("kimi_k2", int4_copy(torch.int32)),
    ("glm5", fp8_copy),
    ("glm52", fp8_copy),
    ("glm5_wide", fp8_copy),
    ("glm5_wide", int4_copy(torch.int64)),
]
EVERY_FILE = pytest.mark.parametrize(
    ("name", "copy"), FILES, ids=["kimi_k2", "glm5", "glm52", "glm5_wide", "glm5_wide-int4"]
)
CHUNKS = [60, 1, 1, 3]


def tensors_of(part: object, seen: set[int]) -> Iterator[torch.Tensor]:
    """Walk everything that a decoder holds."""
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, torch.Tensor):
        yield part
    elif isinstance(part, (list, tuple)):
        for item in part:
            yield from tensors_of(item, seen)
    elif type(part).__module__.startswith("tenantry"):
        names = [*getattr(part, "__dict__", ()), *getattr(type(part), "__slots__", ())]
        for name in names:
            yield from tensors_of(getattr(part, name), seen)


def held_bytes(decoder: Decoder) -> int:
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in tensors_of(decoder, set())
    }
    return sum(storages.values())


@EVERY_FILE
def test_float32_logits_are_those_of_the_dequantized_weights(
    checkpoints: Checkpoints, tmp_path: Path, name: str, copy: Copy
) -> None:
    copy(checkpoints(name).directory, tmp_path / "quantized")
    dequantized_copy(tmp_path / "quantized", tmp_path / "dense")
    token_ids = checkpoints(name).answers[2].token_ids
    stored = load_model(tmp_path / "quantized", weights="stored")
    logits = PagedRun(stored).read(token_ids, CHUNKS)
    expected = PagedRun(load_model(tmp_path / "dense")).read(token_ids, CHUNKS)
    # the order of sums, as between any two kernels
    torch.testing.assert_close(logits, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@EVERY_FILE
def test_deterministic_logits_have_the_bits_of_dense_weights(
    checkpoints: Checkpoints, tmp_path: Path, name: str, copy: Copy, dtype: torch.dtype
) -> None:
    copy(checkpoints(name).directory, tmp_path / "quantized")
    token_ids = checkpoints(name).answers[2].token_ids

    def logits(weights: loader.Weights) -> torch.Tensor:
        decoder = load_model(
            tmp_path / "quantized", dtype=dtype, weights=weights, deterministic=True
        )
        return PagedRun(decoder).read(token_ids, CHUNKS)

    assert torch.equal(logits("stored"), logits("dense"))


@EVERY_FILE
def test_bfloat16_rows_err_by_their_own_rounding_as_with_dense_weights(
    checkpoints: Checkpoints, tmp_path: Path, name: str, copy: Copy
) -> None:
    copy(checkpoints(name).directory, tmp_path / "quantized")

    def products(weights: loader.Weights, dtype: torch.dtype) -> list[torch.Tensor]:
        decoder = load_model(tmp_path / "quantized", dtype=dtype, weights=weights)
        noise = torch.randn(3, decoder.config.hidden_dim, generator=torch.Generator())
        x = noise.bfloat16().to(dtype)
        with torch.inference_mode():
            return [layer.mlp(x).float() for layer in decoder.layers]

    exact = products("dense", torch.float32)
    choices: tuple[loader.Weights, ...] = ("stored", "dense")
    for weights in choices:
        for product, truth in zip(products(weights, torch.bfloat16), exact, strict=True):
            assert (product - truth).norm() < 2**-7 * truth.norm()


@pytest.mark.parametrize("name", NANO)
def test_nano_models_answer_the_same_greedy_tokens(name: str) -> None:
    def answer(weights: loader.Weights) -> list[int]:
        decoder = load_model(CHECKPOINTS / name, weights=weights, deterministic=True)
        run, sequence = PagedRun(decoder), PagedSequence()
        tokens = torch.arange(40, 100)
        answered: list[int] = []
        for _ in range(24):
            (logits,) = run.step([(sequence, tokens)])
            tokens = logits[-1:].argmax(-1)
            answered += tokens.tolist()
        return answered

    assert answer("stored") == answer("dense")


@pytest.mark.parametrize(
    ("name", "held"),
    [("kimi-k2.6-nano", "int4+bfloat16"), ("glm-5.2-nano", "fp8+bfloat16")],
)
def test_a_decoder_holds_its_files_bytes_and_what_is_said_to_be_wider(name: str, held: str) -> None:
    decoder = load_model(CHECKPOINTS / name, dtype=torch.bfloat16, weights="stored")
    assert decoder.weights == held
    file_bytes = (CHECKPOINTS / name / FILE).stat().st_size
    heads = sum(layer.attention.head_maps.weight_NRL.numel() for layer in decoder.layers)
    routers = sum(
        layer.mlp.router.weight_EH.numel()
        for layer in decoder.layers
        if hasattr(layer.mlp, "router")
    )
    # FP8 kv_b_proj becomes BF16, the BF16 router float32; the file has a header
    wider = 2 * routers + (heads if "fp8" in held else 0)
    assert 0.9 * file_bytes < held_bytes(decoder) < file_bytes + wider
    dense = load_model(CHECKPOINTS / name, dtype=torch.bfloat16, weights="dense")
    assert dense.weights == "bfloat16"
    # of these files half is dense anyway
    assert held_bytes(dense) > 1.4 * file_bytes


def test_float32_beside_bfloat16_files_keeps_their_matrices(checkpoints: Checkpoints) -> None:
    tiny = checkpoints("kimi_k2")
    decoder = load_model(tiny.directory, weights="stored")
    assert decoder.weights == "bfloat16+float32"
    assert isinstance(decoder.head, StoredLinear)
    logits = PagedRun(decoder).read(tiny.answers[1].token_ids, CHUNKS)
    torch.testing.assert_close(logits, tiny.answers[1].logits, rtol=0, atol=2e-5)


def test_matrices_of_the_compute_dtype_are_dense_either_way(checkpoints: Checkpoints) -> None:
    decoder = load_model(checkpoints("kimi_k2").directory, dtype=torch.bfloat16, weights="stored")
    assert decoder.weights == "bfloat16"
    assert isinstance(decoder.head, DenseLinear)
    assert isinstance(getattr(decoder.layers[-1].mlp, "experts", None), DenseExperts)


def test_experts_of_several_formats_are_each_as_stored(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    def mixed(tensors: Tensors) -> Tensors:
        whole = ".mlp.experts.3."
        kept = {name: tensor for name, tensor in tensors.items() if whole not in name}
        dense = {name: tensor for name, tensor in original.items() if whole in name}
        return {**kept, **dense}

    tiny = checkpoints("kimi_k2")
    original = load_file(tiny.directory / FILE)
    int4_copy(torch.int32)(tiny.directory, tmp_path / "int4")
    rewritten(tmp_path / "int4", tmp_path / "mixed", mixed)
    token_ids = tiny.answers[2].token_ids
    stored = load_model(tmp_path / "mixed", weights="stored")
    experts = getattr(stored.layers[-1].mlp, "experts", None)
    assert isinstance(experts, StoredExperts)
    formats = [down.matrices[0].format for _, down in experts.products]
    assert formats == ["bfloat16" if n == 3 else "int4" for n in range(8)]
    expected = PagedRun(load_model(tmp_path / "mixed", weights="dense")).read(token_ids)
    torch.testing.assert_close(PagedRun(stored).read(token_ids), expected, rtol=0, atol=2e-5)


def test_mtp_layers_are_as_stored_too(checkpoints: Checkpoints, tmp_path: Path) -> None:
    mtp_copy(checkpoints("glm5").directory, tmp_path / "mtp")
    fp8_copy(tmp_path / "mtp", tmp_path / "fp8")
    token_ids = checkpoints("glm5").answers[2].token_ids
    hidden = torch.randn(len(token_ids) - 1, 64, generator=torch.Generator())
    stored, dense = (
        drafts(load_model(tmp_path / "fp8", weights=weights), hidden, token_ids[1:])[0]
        for weights in ("stored", "dense")
    )
    torch.testing.assert_close(stored, dense, rtol=0, atol=2e-5)


def test_small_models_are_dense_and_large_ones_stay_as_stored(
    checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    int4_copy(torch.int32)(checkpoints("kimi_k2").directory, tmp_path / "int4")
    assert load_model(tmp_path / "int4").weights == "float32"
    monkeypatch.setattr(loader, "DENSE_BYTES", 1000)
    assert load_model(tmp_path / "int4").weights == "bfloat16+int4+float32"
