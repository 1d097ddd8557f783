"""What an interpreter brings for isolates to run on: its library, and the shared objects that it needs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
import msgspec

from .errors import InterpreterUnusable

MIN_VERSION = (3, 11)

_START = Path(__file__).with_name("start.py")
_QUESTIONS = Path(__file__).with_name("ask_interpreter.py")
# importing all of a standard library's extension modules takes about 0.1 s
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """An interpreter that isolates can run on."""

    executable: str
    version: tuple[int, int]
    path: tuple[str, ...]
    """Folders of its standard library, in the order of `sys.path`."""
    libraries: tuple[str, ...]
    """Shared objects that the standard library's modules, and usual wheels, load."""
    msgspec_folder: str

    def start(self, *arguments: str) -> list[str]:
        """Return the command that runs `start.py`, of which nothing but the arguments decides anything."""
        return [self.executable, "-I", "-S", "-B", "-X", "utf8", str(_START), *arguments]


class _Answer(msgspec.Struct, frozen=True):
    version: Annotated[list[int], msgspec.Meta(min_length=2)]
    path: list[str]
    libraries: list[str]
    binary_interface: str
    msgspec_folder: str | None


async def find_interpreter(executable: str = sys.executable) -> Interpreter:
    """Ask an interpreter what it has. Raises `InterpreterUnusable`."""
    command = [executable, "-I", "-S", "-X", "utf8", str(_QUESTIONS)]
    try:
        with anyio.fail_after(_TIMEOUT_S):
            done = await anyio.run_process(
                command, env={}, check=False, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
    except OSError as error:
        raise InterpreterUnusable(executable, str(error)) from error
    except TimeoutError as error:
        raise InterpreterUnusable(executable, "it does not answer") from error
    if done.returncode:
        problem = f"it ends with {done.returncode}: {last_line(done.stderr)}"
        raise InterpreterUnusable(executable, problem)
    return _judge(executable, msgspec.json.decode(done.stdout, type=_Answer))


def last_line(stderr: bytes) -> str:
    """Return what a process said last: of a traceback, the exception."""
    return stderr.decode(errors="replace").strip().rpartition("\n")[2]


def _judge(executable: str, answer: _Answer) -> Interpreter:
    version = (answer.version[0], answer.version[1])
    if version < MIN_VERSION:
        found = ".".join(map(str, version))
        raise InterpreterUnusable(executable, f"it is Python {found}; 3.11 or newer is needed")
    folder = answer.msgspec_folder
    if folder is None and answer.binary_interface == sysconfig.get_config_var("SOABI"):
        folder = _own_msgspec()
    if folder is None:
        problem = "it has no msgspec; `-m pip install msgspec` with it adds that"
        raise InterpreterUnusable(executable, problem)
    return Interpreter(
        executable=executable,
        version=version,
        path=tuple(answer.path),
        libraries=tuple(answer.libraries),
        msgspec_folder=folder,
    )


def _own_msgspec() -> str | None:
    found = importlib.util.find_spec("msgspec")
    return os.path.dirname(found.origin) if found and found.origin else None
