"""The GPU benchmark, as far as a machine without a GPU can prove it.

Every case is built, run and compared at tiny shapes in Triton's interpreter; the clock is a fake.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from support import interpreter
from tenantry_kernels.gpu import page_digest
from tenantry_recipes.bench.gpu import pages, products, work
from tenantry_recipes.bench.gpu.__main__ import run
from tenantry_recipes.bench.gpu.case import (
    Case,
    Run,
    Source,
    Trial,
    differing,
    relative_error,
)
from tenantry_recipes.bench.gpu.clock import GpuClock
from tenantry_recipes.bench.gpu.errors import WrongResults
from tenantry_recipes.bench.gpu.report import Figures, every_case, goals, layout, measure
from tenantry_recipes.bench.gpu.shapes import GLM, KIMI, LOAD, MODELS, Load

if not torch.cuda.is_available():
    interpreter.mend()

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

TINY_KIMI = replace(
    KIMI, hidden=128, num_experts=4, num_choices=2, inner=32, num_heads=2, latent=32, rope=16
)
TINY_GLM = replace(
    TINY_KIMI,
    name=GLM.name,
    num_index_heads=2,
    index_dim=16,
    index_choices=20,
    fp8_matrices={"q_a and kv_a": (160, 128)},
)
TINY_LOAD = Load(rows=(1, 3), sequences=((1, 70), (3, 64)), num_pages=2)


@dataclass
class FakeClock:
    """Runs what it is given once, and says that it took so many seconds."""

    per_run_s: float = 1e-3
    bandwidth: float = 4e12
    num_runs: int = 0

    def seconds(self, run: Run) -> float:
        run()
        self.num_runs += 1
        return self.per_run_s

    def copy_bandwidth(self) -> float:
        return self.bandwidth


def some_figures(op: str, shape: str, seconds: float | None, *, model: str = "GLM-5.2") -> Figures:
    return Figures(
        op=op,
        model=model,
        shape=shape,
        error=0.5,
        tolerance=0.25 if seconds is None else 0.75,
        work=work.Work(8e9, 4e12),
        seconds=seconds,
        copy_bandwidth=4e12,
        goal=0.75,
    )


def test_every_case_gives_what_its_reference_gives(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    run(DEVICE, clock, seed=5, models=(TINY_KIMI, TINY_GLM), load=TINY_LOAD)
    shown = capsys.readouterr().out
    every = list(every_case((TINY_KIMI, TINY_GLM), TINY_LOAD))
    assert clock.num_runs == len(every)
    for case in every:
        assert f"{case}: | {case.op}" in shown
    assert "WRONG" not in shown and "copy: 4000 GB/s" in shown
    assert "INT4 experts 1.00 times as fast as FP8 (goal 1.6)" in shown
    assert "FP8 decode 1.00 times as fast as BF16" in shown


def test_every_kernel_of_the_package_is_measured() -> None:
    """Every file that has a public op, but for those whose kernels another op launches."""
    import tenantry_kernels.gpu as package

    directory = Path(str(package.__file__)).parent
    files = {path.stem for path in directory.glob("*.py")}
    parts_of_others = {"__init__", "mla_tile", "fp8_scale", "expert_sort", "grouped"}
    measured = {case.op.split()[0] for case in every_case(MODELS, LOAD)}
    assert files - parts_of_others <= measured | {"indexer"}
    assert {"index_scores", "top_positions"} <= measured


def test_json_has_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    run(
        DEVICE,
        FakeClock(),
        seed=7,
        wanted="page_digest",
        is_json=True,
        models=(TINY_KIMI,),
        load=TINY_LOAD,
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["seed"] == 7
    (figures,) = answer["figures"]
    assert figures["op"] == "page_digest" and figures["seconds"] == 1e-3


def test_a_wrong_result_has_no_speed(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()

    def build(source: Source) -> Trial:
        return Trial(run=lambda: None, error=lambda: 0.5, tolerance=0.1, work=work.Work(1, 1))

    figures = measure(
        Case(op="broken", model="m", shape="s", build=build), Source(DEVICE, 0), clock, 1e12
    )
    assert figures.seconds is None and figures.of_copy is None and clock.num_runs == 0
    assert "5.0e-01 WRONG" in layout([figures])


def test_wrong_results_fail_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_digest, "page_digests", lambda pool, page: torch.zeros_like(page))
    with pytest.raises(WrongResults, match=r"page_digest, Kimi-K2\.6, 2 fp8 pages") as caught:
        run(
            DEVICE,
            FakeClock(),
            seed=1,
            wanted="page_digest|page_quantise",
            models=(TINY_KIMI,),
            load=TINY_LOAD,
        )
    assert len(caught.value.names) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for what happens without a GPU")
def test_without_a_gpu_the_command_says_so_and_fails() -> None:
    command = subprocess.run(
        [sys.executable, "-m", "tenantry_recipes.bench.gpu"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert command.returncode == 1
    assert command.stderr.startswith("bench-gpu: no NVIDIA GPU that torch can use")
    assert command.stdout == ""


def test_figures_follow_from_bytes_operations_and_time() -> None:
    figures = some_figures("op", "shape", 4e-3)
    assert figures.gigabytes_per_s == pytest.approx(2000)
    assert figures.teraflops == pytest.approx(1000)
    assert figures.of_copy == pytest.approx(0.5)
    cells = [cell.strip() for cell in layout([figures]).splitlines()[-1].split("|")[1:-1]]
    assert cells == [
        "op", "GLM-5.2", "shape", "4000", "2000", "1000", "0.50", "0.75", "5.0e-01",
    ]  # fmt: skip


def test_goals_compare_ops_at_the_same_shape() -> None:
    shape = "8 x 8192 tokens"
    lines = goals(
        [
            some_figures(products.INT4, "1 rows", 2e-5),
            some_figures(products.FP8_EXPERTS, "1 rows", 3e-5),
            some_figures(products.INT4, "8 rows", 4e-5),
            some_figures("mla_decode fp8", shape, 6e-5),
            some_figures("mla_decode bf16", shape, 9e-5),
            some_figures(pages.CHECK, shape, 3e-6),
            some_figures(pages.CHECK, "1 x 32768 tokens", None),
        ],
        (GLM,),
    )
    assert lines == [
        "GLM-5.2, one row: INT4 experts 1.50 times as fast as FP8 (goal 1.6)",
        f"GLM-5.2, {shape}: FP8 decode 1.50 times as fast as BF16 (goal 1)",
        # 2 * 3 us of 75 * (60 + 40) us
        f"GLM-5.2, {shape}: both page checks are at most 0.08% of a step's attention and experts "
        "(goal 0.1%)",
    ]


def test_the_decode_load_has_rows_for_its_sequences() -> None:
    """Else the page check could not be set against the experts of the same step."""
    assert {sequences for sequences, _ in LOAD.sequences} <= set(LOAD.rows)


# worked out by hand from the shapes of one row, one GPU of eight
@pytest.mark.parametrize(
    ("counted", "num_bytes", "flops"),
    [
        # one Kimi expert's part: 3 * 7168 * 256 weights at 4.5 bits; a row in and out
        (work.int4_experts(1, 1, 1, 7168, 256), 5505024 * 4.5 / 8 + 2 * 14336, 2 * 5505024),
        # two rows choose three experts in four slots
        (work.int4_experts(2, 4, 3, 64, 32), 3 * 6144 * 0.5625 + 512, 2 * 4 * 6144),
        # 4.5 blocks of rows count as 5; two rows of 6144 in and 576 out
        (
            work.fp8_product(2, 576, 6144),
            576 * 6144 + 5 * 48 * 4 + 2 * 6720 * 2,
            2 * 2 * 576 * 6144,
        ),
        (work.router(3, 256, 6144, 8), 259 * 12288 + 1024 + 192, 2 * 3 * 256 * 6144),
        # 580 bytes a key in FP8, 1152 in BF16; 8 heads of 576 in and 512 out
        (
            work.mla_decode(1000, 1, 8, 512, 64, is_fp8=True),
            580000 + 8 * 1088 * 2,
            2 * 1000 * 8 * 1088,
        ),
        (
            work.mla_decode(1000, 2, 8, 512, 64, is_fp8=False),
            1152000 + 2 * 8 * 1088 * 2,
            2 * 1000 * 8 * 1088,
        ),
        # 132 bytes a key, and its score; 32 heads of 128 with a weight each
        (
            work.index_scores(100, 1, 32, 128),
            13200 + 400 + 32 * (256 + 4),
            2 * 100 * 32 * 128,
        ),
        (work.top_positions(1000, 20), 4080, 0),
        (work.page_check(2, 10), 384, 0),
        (work.append(3, 576, is_fp8=True), 3 * (1152 + 580 + 8), 0),
        (work.append(3, 576, is_fp8=False), 3 * (1152 + 1152 + 8), 0),
        (work.page_quantise(2, 576), 2 * (73728 + 37120), 0),
        (work.page_digest(2, 576), 2 * (37120 + 8), 0),
    ],
)
def test_work_is_what_must_move(counted: work.Work, num_bytes: float, flops: float) -> None:
    assert counted == (num_bytes, flops)


def test_shapes_are_those_of_the_released_configurations() -> None:
    """Kimi reads 5.2 us worth of experts per layer at one row and 4.8 TB/s."""
    weights = work.int4_experts(1, 8, 8, KIMI.hidden, KIMI.inner).num_bytes
    assert weights / 4.8e12 == pytest.approx(5.2e-6, rel=0.01)
    assert GLM.fp8_matrices["output"] == (6144, 64 * 256 // 8)


def test_errors_are_relative_to_the_largest_value() -> None:
    expected = torch.tensor([1.0, -4.0])
    assert relative_error(torch.tensor([1.0, -3.0]), expected) == 0.25
    assert relative_error(torch.tensor([torch.nan, -4.0]), expected) == float("inf")
    assert differing(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5])) == 0.25


@dataclass
class FakeEvent:
    """Reads the fake GPU's time when it is recorded."""

    enable_timing: bool
    at_ms: float = 0.0

    def record(self) -> None:
        self.at_ms = FakeGpu.now_ms

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at_ms - self.at_ms


@dataclass
class FakeGraph:
    """Takes longer the first times."""

    num_replays: int = 0

    def replay(self) -> None:
        self.num_replays += 1
        FakeGpu.now_ms += 9.0 if self.num_replays <= 5 else 2.0


@dataclass
class FakeGpu:
    """What the clock asks torch.cuda for."""

    now_ms = 0.0
    captured: list[FakeGraph] = field(default_factory=list)

    @contextmanager
    def graph(self, graph: FakeGraph) -> Iterator[None]:
        self.captured.append(graph)
        yield


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu = FakeGpu()
    monkeypatch.setattr(FakeGpu, "now_ms", 0.0)
    for name, value in {
        "Event": FakeEvent,
        "CUDAGraph": FakeGraph,
        "graph": gpu.graph,
        "synchronize": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr("tenantry_recipes.bench.gpu.clock._FLUSH_BYTES", 1024)
    return gpu


def test_the_clock_times_replays_of_a_captured_graph(fake_gpu: FakeGpu) -> None:
    calls: list[None] = []
    clock = GpuClock(torch.device("cpu"), copy_bytes=1000)
    assert clock.seconds(lambda: calls.append(None)) == pytest.approx(2e-3)
    # once to compile, once to capture
    assert len(calls) == 2 and len(fake_gpu.captured) == 1


def test_copy_bandwidth_counts_bytes_read_and_written(fake_gpu: FakeGpu) -> None:
    assert GpuClock(torch.device("cpu"), copy_bytes=1000).copy_bandwidth() == pytest.approx(
        1000 / 2e-3
    )
