"""The compiling harness sees what is launched, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from support.aot import MAX_SHARED_BYTES, Call, Compiled, compile_calls, meta

OP = "support.toy_kernels:square"


@pytest.fixture(scope="module")
def compiled() -> Mapping[str, tuple[Compiled, ...]]:
    return compile_calls(
        {
            "plain": Call(OP, (meta(1000), 64), {"num_warps": 4}),
            "one value": Call(OP, (meta(1), 64), {"num_warps": 4}),
            "few registers": Call(OP, (meta(1000), 64), {"num_warps": 4, "maxnreg": 64}),
        }
    )


def test_a_launch_is_specialized_as_on_a_gpu(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    (kernel,) = compiled["plain"]
    assert kernel.kernel == "_square_kernel"
    assert kernel.grid == (16,) and kernel.num_warps == 4
    assert kernel.constants == {"BLOCK": 64}
    # a length of 1 is a constant to the JIT
    assert compiled["one value"][0].constants == {"BLOCK": 64, "num_values": 1}


def test_matrix_instructions_registers_and_shared_memory_are_seen(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    (kernel,) = compiled["plain"]
    assert kernel.count("HGMMA") > 0 and kernel.count("NOSUCH") == 0
    assert 0 < kernel.registers < 255
    assert 0 < kernel.shared_bytes <= MAX_SHARED_BYTES
    assert f"HGMMA {kernel.count('HGMMA')}" in str(kernel)


def test_spills_are_seen(compiled: Mapping[str, tuple[Compiled, ...]]) -> None:
    (roomy,), (tight,) = compiled["plain"], compiled["few registers"]
    assert roomy.spill_bytes == 0
    assert tight.registers <= 64 and tight.spill_bytes > 0


def test_an_op_that_does_not_compile_is_reported() -> None:
    with pytest.raises(RuntimeError, match="unrecognised"):
        compile_calls({"broken": Call(OP, (meta(10), 64), {"no_such_option": 1})})
