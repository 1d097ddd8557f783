"""What the checks of a deployment raise among themselves; `read.py` adds which file it is."""

from __future__ import annotations


class Misfit(ValueError):
    """A key's value does not fit the rest of the file."""

    def __init__(self, key: str, problem: str) -> None:
        self.key = key
        self.problem = problem
        super().__init__(key, problem)

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}"
