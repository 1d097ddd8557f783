"""What workers may ask for, and what is refused before anything is looked for."""

from __future__ import annotations

import pytest

from tenantry_runtime.errors import DependenciesRefused
from tenantry_runtime.workers.bundles.requirements import read_requirements


def test_names_with_versions_extras_and_markers_are_looked_for() -> None:
    asked = ["starlette[full]>=0.40; python_version >= '3.11'", "Pydantic >=2.7,<3", "anyio"]
    assert [str(each) for each in read_requirements(asked)] == [
        "anyio",
        "Pydantic<3,>=2.7",
        'starlette[full]>=0.40; python_version >= "3.11"',
    ]


def test_comments_empty_lines_and_what_is_there_anyway_are_left_out() -> None:
    assert (
        read_requirements(["", "# mine", "workers-py", "Workers_Runtime.SDK>=1", "tenantry"]) == ()
    )
    assert [str(each) for each in read_requirements(["anyio  # for tasks"])] == ["anyio"]


@pytest.mark.parametrize(
    "asked",
    [
        "evil @ https://example.com/evil-1.0-py3-none-any.whl",
        "evil @ file:///etc/passwd",
        "git+https://example.com/evil.git",
        "https://example.com/evil.tar.gz",
        "./evil",
        "../evil",
        "/etc",
        "~/evil",
    ],
)
def test_packages_from_elsewhere_are_refused_with_the_remedy(asked: str) -> None:
    with pytest.raises(DependenciesRefused, match="operator's index alone"):
        read_requirements([asked])


@pytest.mark.parametrize(
    "asked",
    [
        "-r other.txt",
        "--index-url https://example.com",
        "--extra-index-url=https://example.com",
        "-e .",
    ],
)
def test_options_are_refused(asked: str) -> None:
    with pytest.raises(DependenciesRefused, match="options are the operator's"):
        read_requirements(["anyio", asked])


def test_too_much_is_refused() -> None:
    with pytest.raises(DependenciesRefused, match="101 dependencies; 100 are allowed"):
        read_requirements([f"package{n}" for n in range(101)])
    with pytest.raises(DependenciesRefused, match="longer than"):
        read_requirements(["x" * 600])
    with pytest.raises(DependenciesRefused, match="no requirement"):
        read_requirements(["two words"])
