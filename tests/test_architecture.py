"""The dependency rule: cli -> runtime -> kernels, and everything -> sdk. The edge loads no torch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# the roots are folders, not packages: `import runtime` works by accident from the repository only
ROOT_FOLDERS = {"sdk", "runtime", "kernels", "cli", "recipes"}

# package -> import roots its modules must not name, at any depth of the file
FORBIDDEN = {
    "sdk/tenantry": {
        "tenantry_runtime",
        "tenantry_kernels",
        "tenantry_cli",
        "torch",
        "triton",
        "grpc",
    },
    "kernels/tenantry_kernels": {"tenantry", "tenantry_runtime", "tenantry_cli", "grpc", "anyio"},
    "runtime/tenantry_runtime": {"tenantry_cli", "tenantry_recipes", "click"},
    "cli/tenantry_cli": {"tenantry_kernels", "tenantry_recipes", "torch", "triton"},
    "recipes/tenantry_recipes": {"tenantry_cli"},
    # the HTTP process and all that runs in it
    "runtime/tenantry_runtime/edge": {"torch", "triton"},
    "runtime/tenantry_runtime/tenancy": {"torch", "triton"},
    "runtime/tenantry_runtime/catalog": {"torch", "triton"},
    "runtime/tenantry_runtime/text": {"torch", "triton"},
    "runtime/tenantry_runtime/telemetry": {"torch", "triton"},
}


def imported_roots(source: str) -> set[str]:
    roots: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            roots.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            roots.add(node.module.split(".")[0])
    return roots


@pytest.mark.parametrize("package", FORBIDDEN)
def test_package_imports_only_what_lies_below_it(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"{package} has no modules: was it renamed?"
    offenders = {
        str(path.relative_to(ROOT)): sorted(bad)
        for path in files
        if (bad := imported_roots(path.read_text()) & (FORBIDDEN[package] | ROOT_FOLDERS))
    }
    assert not offenders


def test_files_stay_under_five_hundred_lines() -> None:
    long_files = {
        str(path.relative_to(ROOT)): lines
        for folder in (*sorted(ROOT_FOLDERS), "tests")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 500
    }
    assert not long_files
