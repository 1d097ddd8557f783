"""Why formats are not compared."""

from __future__ import annotations

from pathlib import Path

from tenantry_runtime.errors import TenantryError


class FormatEvaluationError(TenantryError):
    """A comparison that would not say what it seems to."""


class ResultsMismatch(FormatEvaluationError):
    """The results of an earlier run are of other items or another model."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(path, problem)

    def __str__(self) -> str:
        return f"{self.path} {self.problem}; name another file with --results, or remove it"


class ResultsInUse(FormatEvaluationError):
    """Another run adds to the same file: both would judge the same items."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(path)

    def __str__(self) -> str:
        return f"another run adds to {self.path}; wait for its end, or name another file with --results"
