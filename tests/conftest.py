"""What every suite shares: which suites this machine can run, and hypothesis's two profiles."""

from __future__ import annotations

import os
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

HAS_RUNTIME = find_spec("torch") is not None

TESTS = Path(__file__).parent
KERNEL_TESTS = TESTS / "kernels" / "gpu"
WORKER_TESTS = [
    TESTS / "runtime" / "workers",
    TESTS / "runtime" / "edge" / "control",
    TESTS / "runtime" / "edge" / "worker_routes",
    TESTS / "runtime" / "tenancy" / "workers",
    TESTS / "cli" / "workers",
    TESTS / "sdk" / "workers",
    TESTS / "integration" / "test_workerctl_deploy.py",
]
RECIPE_TESTS = TESTS / "recipes"
MODEL_TESTS = [TESTS / "runtime" / "models", TESTS / "kernels"]
GPU_PATH_TESTS = {"test_gpu_path.py", "test_gpu_loop.py", "test_device_steps.py"}

# fixtures of all suites
pytest_plugins = ["support.postgresql"]
if HAS_RUNTIME:
    pytest_plugins += ["support.spans"]

# a base install has the SDK and the command line only; CI sets TENANTRY_TEST_RUNTIME to be sure
NEED_RUNTIME = ["browser", "kernels", "runtime", "recipes", "integration", "conformance"]
NEED_RUNTIME += [
    f"cli/test_{command}.py"
    for command in ("batch", "operator", "sandbox", "secret", "top", "usage")
]
collect_ignore = [] if HAS_RUNTIME else NEED_RUNTIME

# the one place for example counts: `ci` for every run, `full` before a release
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("full", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if HAS_RUNTIME:
    import torch

    if not torch.cuda.is_available():
        # read when @triton.jit decorates, so it must precede the first import of a kernel
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_configure() -> None:
    if os.environ.get("TENANTRY_TEST_RUNTIME") and not HAS_RUNTIME:
        pytest.exit("TENANTRY_TEST_RUNTIME is set, but torch is not installed", returncode=4)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folders, and what runs in Triton's interpreter or compiles kernels, before `-m` chooses."""
    for item in items:
        if any(place in (item.path, *item.path.parents) for place in WORKER_TESTS):
            item.add_marker("workers")
        if any(place in item.path.parents for place in MODEL_TESTS):
            item.add_marker("models")
        if RECIPE_TESTS in item.path.parents:
            item.add_marker("recipes")
        if KERNEL_TESTS in item.path.parents or item.path.name in GPU_PATH_TESTS:
            item.add_marker("triton")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what a test printed that UTF-8 has no bytes for: reports go from process to process."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


def pytest_report_header() -> str:
    return "tenantry: " + (
        "all suites" if HAS_RUNTIME else "no torch, so only the SDK's and the CLI's suites run"
    )
