"""A decode step in one compiled call: the same bits by however many threads, and in any company."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from support.paged_batch import PagedRun, PagedSequence
from support.tiny_checkpoints import TinyCheckpoint, prompt
from tenantry_kernels import choice
from tenantry_kernels.cpu.decode import DecodeStep
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.models import load_model

CACHES = pytest.mark.parametrize("cache", SERVED_FORMATS)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
# both sides of a page's edge, and more than sparse attention takes
LENGTHS = (1, 63, 64, 100)


@pytest.fixture(autouse=True)
def num_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each compiled step that was run."""
    rows: list[int] = []
    run = DecodeStep.run

    def counted(self: DecodeStep, batch: Any) -> torch.Tensor:
        rows.append(len(batch.token_T))
        return run(self, batch)

    monkeypatch.setattr(DecodeStep, "run", counted)
    return rows


def decoded(tiny: TinyCheckpoint, dtype: torch.dtype, cache: CacheName) -> torch.Tensor:
    """Return the logits of sequences that go on side by side and then one alone."""
    run = PagedRun(load_model(tiny.directory, dtype=dtype), cache=cache)
    sequences = [PagedSequence() for _ in LENGTHS]
    run.step([(s, prompt(n, n)) for s, n in zip(sequences, LENGTHS, strict=True)])
    steps = [run.step([(s, prompt(1, n)) for s in sequences]) for n in range(3)]
    alone = run.step([(sequences[-1], prompt(1, 5))])
    return torch.cat([logits for step in (*steps, alone) for logits in step])


@DTYPES
@CACHES
def test_several_threads_compute_the_bits_of_one(
    tiny: TinyCheckpoint,
    dtype: torch.dtype,
    cache: CacheName,
    steps: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.set_num_threads(1)
    expected = decoded(tiny, dtype, cache)

    def by_three(*args: Any, **options: Any) -> DecodeStep:
        return DecodeStep(*args, **{**options, "num_threads": 3})

    # of the step alone: with more threads torch reads the prompts in another way
    monkeypatch.setattr("tenantry_runtime.models.decode_step.DecodeStep", by_three)
    assert torch.equal(decoded(tiny, dtype, cache), expected)
    assert steps == [4, 4, 4, 1] * 2


@DTYPES
def test_a_row_has_the_same_bits_in_company(tiny: TinyCheckpoint, dtype: torch.dtype) -> None:
    torch.set_num_threads(1)
    decoder = load_model(tiny.directory, dtype=dtype)
    rows = []
    for company in ([], [1, 64], [63, 64, 100, 5, 6]):
        run = PagedRun(decoder)
        mine, *others = [PagedSequence() for _ in range(1 + len(company))]
        run.step([(mine, prompt(70, 0))])
        for other, length in zip(others, company, strict=True):
            run.step([(other, prompt(length, length))])
        rows.append(run.step([(s, prompt(1, 3)) for s in (mine, *others)])[0])
    # one row alone attends by other groups of heads, each of which has its own sums
    assert all(torch.equal(row, rows[0]) for row in rows)


def test_chunks_and_deterministic_decoders_take_no_step(
    tiny: TinyCheckpoint, steps: list[int]
) -> None:
    PagedRun(load_model(tiny.directory, deterministic=True)).read(prompt(3, 0), [1, 1])
    PagedRun(load_model(tiny.directory)).read(prompt(3, 0))
    assert not steps


def test_without_a_compiler_no_step_is_taken(
    tiny: TinyCheckpoint, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "HAS_COMPILER", False)
    PagedRun(load_model(tiny.directory)).read(prompt(3, 0), [1, 1])
    assert not steps


def test_a_page_that_is_not_there_is_an_error(tiny: TinyCheckpoint) -> None:
    run = PagedRun(load_model(tiny.directory))
    sequence = PagedSequence()
    run.step([(sequence, prompt(5, 0))])
    sequence.pages[0] = 10**9
    with pytest.raises(IndexError, match="page"):
        run.step([(sequence, prompt(1, 0))])


def test_a_token_outside_the_vocabulary_is_an_error(tiny: TinyCheckpoint) -> None:
    run = PagedRun(load_model(tiny.directory))
    sequence = PagedSequence()
    run.step([(sequence, prompt(5, 0))])
    with pytest.raises(IndexError):
        run.step([(sequence, torch.tensor([10**9]))])
