"""What is wrong with a configuration: said in full, and ended with 2 like a wrong command line."""

from __future__ import annotations

from collections.abc import Sequence

import click


class ConfigError(click.ClickException):
    """Names the file, and each key with what to do about it."""

    exit_code = 2

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.source = source
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            super().__init__(f"{source}: {self.problems[0]}")
        else:
            listed = "\n".join(f"  - {problem}" for problem in self.problems)
            super().__init__(f"{source}:\n{listed}")
