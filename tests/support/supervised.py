"""A supervisor in a process of its own, as a terminal starts it, and what it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from support.processes import descendants_of

PATIENCE_S = 120.0
"""For a start that takes seconds on a machine with nothing else to do."""


@dataclass(slots=True, kw_only=True)
class Supervised:
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def wait_for_line(self, wanted: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if wanted in line:
                return
        raise AssertionError(f"no {wanted!r} in: {self.lines}")

    def wait_for_end(self) -> int:
        assert self.process.stdout is not None
        self.lines += self.process.stdout.read().splitlines()
        return self.process.wait()

    def descendants(self, count: int) -> list[int]:
        """Wait until there are so many, and return their process ids."""
        while len(pids := descendants_of(self.process.pid)) < count:
            assert self.process.poll() is None, self.lines
        return pids

    def interrupt(self) -> None:
        """Do as a terminal does on Ctrl-C: signal the whole process group."""
        os.killpg(self.process.pid, signal.SIGINT)


@contextmanager
def a_process(
    program: str, *arguments: str, env: Mapping[str, str], patience_s: float = PATIENCE_S
) -> Iterator[Supervised]:
    """Run Python code; leaving kills it if it still runs, and after `patience_s` in any case."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        start_new_session=True,
    ) as process:
        watchdog = threading.Timer(patience_s, process.kill)
        watchdog.start()
        try:
            yield Supervised(process=process)
        finally:
            watchdog.cancel()
            process.kill()
