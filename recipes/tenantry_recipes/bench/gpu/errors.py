"""Why the GPU benchmark gives no figures."""

from __future__ import annotations

from tenantry_recipes.bench.errors import BenchmarkError


class NoGpu(BenchmarkError):
    """There is nothing to measure on."""

    def __init__(self) -> None:
        super().__init__(
            "no NVIDIA GPU that torch can use on this machine: nothing was measured. The kernels' "
            "tests run without one (python -m pytest tests/kernels/gpu): in Triton's interpreter, "
            "and compiled ahead of time for sm_90."
        )


class WrongResults(BenchmarkError):
    """Kernels that do not give what their references give, and so have no speed."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"wrong results, hence no figures, from: {'; '.join(names)}")
        self.names = names
