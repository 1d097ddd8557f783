"""Where an op runs: compiled on a CPU in inference mode, otherwise in torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
import torch

from tenantry_kernels import choice
from tenantry_kernels.choice import OpName, is_compiled

OPS: tuple[OpName, ...] = get_args(OpName)
EVERY_OP = pytest.mark.parametrize("op", OPS)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def rows(number: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(number, 4, dtype=dtype)


@EVERY_OP
def test_few_rows_are_computed_by_compiled_ops(op: OpName) -> None:
    with torch.inference_mode():
        assert is_compiled(op, rows(8)) and is_compiled(op, rows(8, torch.bfloat16))


@EVERY_OP
def test_what_may_need_gradients_is_computed_by_torch(op: OpName) -> None:
    assert not is_compiled(op, rows(1))
    with torch.no_grad():
        assert not is_compiled(op, rows(1))


@EVERY_OP
@torch.inference_mode()
def test_other_devices_and_dtypes_are_torchs(op: OpName) -> None:
    assert not is_compiled(op, torch.zeros(1, 4, device="meta"))
    assert not is_compiled(op, rows(1, torch.float16))


@EVERY_OP
@torch.inference_mode()
def test_without_a_compiler_everything_is_torchs(
    op: OpName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "HAS_COMPILER", False)
    assert not is_compiled(op, rows(1))


@torch.inference_mode()
def test_deterministic_mode_takes_what_computes_row_by_row() -> None:
    assert [op for op in OPS if is_compiled(op, rows(1), deterministic=True)] == [
        "norm",
        "gate",
        "rows",
    ]


@torch.inference_mode()
def test_many_rows_leave_bf16_products_to_torch() -> None:
    many = rows(1024, torch.bfloat16)
    theirs = [op for op in OPS if not is_compiled(op, many)]
    assert theirs == ["chunk", "router", "experts", "product", "absorb", "expand", "step", "stored"]
    assert is_compiled("product", rows(1024)) and not is_compiled("chunk", rows(64))


@torch.inference_mode()
def test_torch_divides_many_rows_among_threads() -> None:
    torch.set_num_threads(2)
    assert is_compiled("product", rows(64)) and not is_compiled("product", rows(65))
    assert is_compiled("norm", rows(65))
