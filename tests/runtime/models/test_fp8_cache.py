"""Decoders over FP8 pages: quantised on the way in, read by every path, harmless where refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from support.paged_batch import PagedRun, PagedSequence
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_kernels import choice, fp8_rows
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models.attend import (
    AttentionRows,
    ChosenPositions,
    IndexRows,
    PagedAttend,
    Selection,
)
from tenantry_runtime.models.loader import load_model

MODES = pytest.mark.parametrize("deterministic", [False, True], ids=["fast", "deterministic"])
CHUNKS = (70, 1, 20, 1, 1)
"""A long chunk, a short one, and single tokens; the rest of the prompt follows."""


class RoundedAttend(PagedAttend):
    """Rounds rows before it keeps them, in an exact cache."""

    def select(self, layer: int, rows: IndexRows) -> ChosenPositions | None:
        return super().select(layer, replace(rows, key_TD=rounded(rows.key_TD)))

    def attend(self, layer: int, rows: AttentionRows, selection: Selection | None) -> torch.Tensor:
        kept = rounded(torch.cat((rows.latent_TL, rows.k_rope_Tr), -1))
        latent, rope = kept.split([rows.latent_TL.shape[1], rows.k_rope_Tr.shape[1]], -1)
        return super().attend(layer, replace(rows, latent_TL=latent, k_rope_Tr=rope), selection)


def rounded(rows: torch.Tensor) -> torch.Tensor:
    """Return rows as FP8 holds them, by the definition."""
    amax = rows.double().abs().amax(-1, keepdim=True)
    scale = 2.0 ** torch.ceil(torch.log2(amax / 448))
    return ((rows.double() / scale).to(torch.float8_e4m3fn).double() * scale).float()


@pytest.mark.parametrize("has_compiler", [True, False], ids=["compiled", "torch"])
def test_logits_are_those_of_an_exact_cache_of_rounded_rows(
    tiny: TinyCheckpoint, has_compiler: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "HAS_COMPILER", has_compiler)
    decoder = load_model(tiny.directory, deterministic=True)
    token_ids = tiny.answers[1].token_ids
    fp8 = PagedRun(decoder, cache="fp8").read(token_ids, CHUNKS)
    monkeypatch.setattr("tenantry_runtime.models.decoder.PagedAttend", RoundedAttend)
    assert torch.equal(fp8, PagedRun(decoder).read(token_ids, CHUNKS))
    # and rounding is not nothing
    assert (fp8 - tiny.answers[1].logits).abs().max() > 1e-3


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
@pytest.mark.parametrize("has_compiler", [True, False], ids=["compiled", "torch"])
def test_fast_and_deterministic_mode_agree(
    tiny: TinyCheckpoint, has_compiler: bool, cache: CacheName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "HAS_COMPILER", has_compiler)
    fast, fixed = (
        PagedRun(load_model(tiny.directory, deterministic=deterministic), cache=cache).read(
            tiny.answers[1].token_ids, CHUNKS
        )
        for deterministic in (False, True)
    )
    error = (fast - fixed).norm(dim=-1) / fixed.norm(dim=-1)
    # a sum that falls on the other side of a rounding changes a row; most have none
    assert error.median() < 0.01


def test_pages_hold_what_a_float32_cache_holds_quantised(tiny: TinyCheckpoint) -> None:
    decoder = load_model(tiny.directory)
    exact, fp8 = (PagedRun(decoder, cache=name) for name in ("float32", "fp8"))
    token_ids = tiny.answers[0].token_ids[:70]
    sequences = PagedSequence(), PagedSequence()
    for run, sequence in zip((exact, fp8), sequences, strict=True):
        run.step([(sequence, token_ids)])
    slots = sequences[0].slots(torch.arange(70))
    assert torch.equal(slots, sequences[1].slots(torch.arange(70)))
    # the first layer has read no cache yet, so its rows are the same
    rows = exact.cache.latent_N[0].flatten(0, 1)[slots]
    value, scale = fp8_rows.quantise_rows(rows)
    kept = fp8_rows.gather_rows(fp8.cache.latent_N[0], slots)
    assert torch.equal(kept, fp8_rows.dequantise_rows(value, scale))


def test_a_step_writes_its_own_slots_and_the_sink_only(tiny: TinyCheckpoint) -> None:
    run = PagedRun(load_model(tiny.directory), num_pages=4, cache="fp8")
    reader, refused = PagedSequence(), PagedSequence(is_refused=True)
    token_ids = tiny.answers[0].token_ids[:70]
    run.step([(reader, token_ids), (refused, token_ids[:3])])
    own = sorted(reader.slots(torch.arange(70)).tolist())
    for pool in (*run.cache.latent_N, *run.cache.index_keys.values()):
        for part in (fp8_rows.page_values(pool).view(torch.uint8), fp8_rows.page_scales(pool)):
            is_written = ~part.isnan() if part.is_floating_point() else (part != 0xFF).all(-1)
            written = is_written.flatten().nonzero().flatten().tolist()
            assert [slot for slot in written if slot < 4 * PAGE_TOKENS] == own


@MODES
@pytest.mark.parametrize("num_refused_rows", [1, 20], ids=["decode", "prefill"])
def test_a_refused_sequence_leaves_its_neighbors_logits_alone(
    tiny: TinyCheckpoint, deterministic: bool, num_refused_rows: int
) -> None:
    decoder = load_model(tiny.directory, deterministic=deterministic)
    token_ids = tiny.answers[1].token_ids
    beside, alone = (PagedRun(decoder, cache="fp8") for _ in range(2))
    reader, refused, single = PagedSequence(), PagedSequence(is_refused=True), PagedSequence()
    for ids in token_ids.split([70, 1, 26]):
        others = tiny.answers[0].token_ids[:num_refused_rows]
        logits, refused_logits = beside.step([(reader, ids), (refused, others)])
        (expected,) = alone.step([(single, ids)])
        assert refused_logits.isfinite().all()
        error = (logits - expected).norm(dim=-1) / expected.norm(dim=-1)
        # sums in another order may fall on the other side of a rounding
        assert torch.equal(logits, expected) if deterministic else error.median() < 0.02
