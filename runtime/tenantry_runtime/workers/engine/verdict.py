"""Why an invocation, or an isolate with all that runs in it, ended before its time."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from tenantry_runtime.workers.isolate import Ending, EndingKind, InvocationFailed
from tenantry_runtime.workers.outcome import Outcome

from .interface import Exit


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, and what the tenant's log and the error page say."""

    outcome: Outcome
    problem: str
    path: str = ""
    """The worker's file where it was when it was asked; "": it did not say."""
    line: int = 0

    @property
    def message(self) -> str:
        """The problem, and where."""
        return f"{self.problem}, in {self.path}, line {self.line}" if self.path else self.problem

    def at(self, path: str, line: int) -> Verdict:
        """Say in which line of the worker's that was."""
        return Verdict(self.outcome, self.problem, path, line)

    def of_others(self) -> Verdict:
        """Say it to those who had to end with the one that it is about."""
        problem = f"another request held the isolate up and was ended with it: {self.message}"
        return Verdict(Outcome.UNRESPONSIVE, problem)


MEMORY_ERRORS = frozenset({"MemoryError", "_ArrayMemoryError"})
"""What Python, and numpy, raise when the isolate's memory is full."""


def of_exception(error: InvocationFailed) -> Verdict:
    """Say what a handler's exception means."""
    message = f"{error.name}: {error.message}" if error.message else error.name
    if error.name in MEMORY_ERRORS:
        return Verdict(Outcome.EXCEEDED_MEMORY, f"the worker's memory is full ({message})")
    return Verdict(Outcome.EXCEPTION, message)


def of_ending(ending: Ending, exit: Exit) -> Verdict:
    """Say why an isolate that nobody ended has ended.

    | how | what it means |
    |---|---|
    | said what no worker says | `protocolViolation` |
    | SIGKILL | `exceededMemory`: the kernel sends it when a control group is full |
    | SIGXCPU | `exceededCpu`: of its whole life |
    | another signal, a status | `crashed` |
    """
    if ending.kind is EndingKind.VIOLATION:
        return Verdict(Outcome.VIOLATION, ending.message)
    if exit.signal == signal.SIGKILL:
        return Verdict(Outcome.EXCEEDED_MEMORY, "the kernel ended the isolate: its memory is full")
    if exit.signal == signal.SIGXCPU:
        return Verdict(Outcome.EXCEEDED_CPU, "the isolate has used the CPU time of its whole life")
    if exit.signal == signal.SIGSYS:
        return Verdict(Outcome.CRASHED, "the isolate made a system call that workers may not make")
    if exit.signal is not None:
        return Verdict(Outcome.CRASHED, f"the isolate died of {_name(exit.signal)}")
    if exit.status is not None:
        return Verdict(Outcome.CRASHED, f"the isolate ended itself with status {exit.status}")
    return Verdict(Outcome.CRASHED, "the isolate ended")


def exceeded_cpu(what: str, limit_ms: float) -> Verdict:
    """Say that CPU time is used up."""
    return Verdict(Outcome.EXCEEDED_CPU, f"{what} used more than {limit_ms:g} ms of CPU time")


def exceeded_wall(what: str, limit_s: float) -> Verdict:
    """Say that time is over."""
    return Verdict(Outcome.EXCEEDED_WALL, f"{what} took more than {limit_s:g} s")


def blocked(silent_s: float) -> Verdict:
    """Say that it waits and lets nothing else go on."""
    problem = f"the worker waits in a call that blocks all else, for more than {silent_s:g} s"
    return Verdict(Outcome.EXCEEDED_WALL, problem)


def disobeyed() -> Verdict:
    """Say that it went on when nobody wanted it any more."""
    return Verdict(Outcome.EXCEEDED_WALL, "the worker went on when it was told to end")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
