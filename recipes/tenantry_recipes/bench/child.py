"""A contender in a process of its own, which lives until it is closed.

That process is `child_process`; on their connection `Settings` come first, then `Command`s. Each
is answered by its result, or by a `Failure`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from types import TracebackType
from typing import TypeAlias

from .contender import BenchPrompt, Run, Settings, environment
from .errors import BenchmarkError


@dataclass(frozen=True, slots=True)
class Generate:
    prompts: tuple[BenchPrompt, ...]
    num_tokens: int


@dataclass(frozen=True, slots=True)
class TellPeak:
    """Asks for `peak_bytes`."""


Command: TypeAlias = Generate | TellPeak


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, as a traceback."""

    text: str


class ChildContender:
    """A `Contender` that has another process do the work."""

    def __init__(self, settings: Settings) -> None:
        """Start loading; the first command waits until that is done."""
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tenantry_recipes.bench.child_process",
                    str(theirs.fileno()),
                ],
                env=os.environ | environment(settings),
                pass_fds=[theirs.fileno()],
            )
        self._connection.send(settings)

    def __enter__(self) -> ChildContender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def generate(self, prompts: Sequence[BenchPrompt], num_tokens: int) -> Run:
        answer = self._ask(Generate(tuple(prompts), num_tokens))
        assert isinstance(answer, Run)
        return answer

    def peak_bytes(self) -> int:
        answer = self._ask(TellPeak())
        assert isinstance(answer, int)
        return answer

    def close(self) -> None:
        """End the process: it sees that nobody is left to command it."""
        self._connection.close()
        self._process.wait()

    def _ask(self, command: Command) -> Run | int:
        self._connection.send(command)
        try:
            answer: Run | int | Failure = self._connection.recv()
        except EOFError:
            code = self._process.wait()
            raise BenchmarkError(f"a contender's process ended with code {code}") from None
        if isinstance(answer, Failure):
            raise BenchmarkError(f"a contender failed:\n{answer.text}")
        return answer
