"""The state directory of a machine, in which each part runs once at a time.

| path | holds |
|---|---|
| tenantry.db | the store, made by the edge and by `tenancy` |
| logs/NAME.log | what a child process wrote; `.previous` is from the start before |
| run/ | configurations and sockets; mode 0700, nothing of lasting value |
| run/NAME.lock | locked as long as the part runs; its supervisor's process id |
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tenantry_runtime.deployment.node_address import MAX_SOCKET_PATH_BYTES
from tenantry_runtime.deployment.plan import EDGE
from tenantry_runtime.errors import ConfigurationError

_LONGEST_SOCKET = "prefill.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDirectory:
    """A directory in which this instance's parts are locked."""

    path: Path
    sockets: Path
    """Short enough for the sockets of nodes called `node`, `prefill` and `decode`."""

    @property
    def run(self) -> Path:
        return self.path / "run"

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def socket(self, name: str) -> Path:
        return self.sockets / f"{name}.sock"


@contextmanager
def claim(
    path: Path, parts: Sequence[str] = (EDGE,), *, option: str = "--state-dir"
) -> Iterator[StateDirectory]:
    """Make the directory if need be, and lock it for the parts.

    Raise `ConfigurationError` when it is unusable, or one of the parts runs in it already; `option`
    is what chooses another directory.
    """
    path = path.absolute()
    with ExitStack() as stack:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in ("run", "logs"):
                (path / folder).mkdir(mode=0o700, exist_ok=True)
            for part in parts:
                stack.enter_context(_locked(path, part, option))
        except OSError as error:
            problem = f"the state directory {path} is unusable: {error.strerror}"
            raise ConfigurationError(problem) from error

        sockets = path / "run"
        if len(os.fsencode(sockets / _LONGEST_SOCKET)) > MAX_SOCKET_PATH_BYTES:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tenantry-"))
            sockets = Path(folder)
        yield StateDirectory(path=path, sockets=sockets)


@contextmanager
def _locked(path: Path, part: str, option: str) -> Iterator[None]:
    with (path / "run" / f"{part}.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise ConfigurationError(
                f"process {lock.read().strip() or '?'} uses the state directory {path} already, "
                f"for its {part}; end it, or choose another directory with {option}"
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield
