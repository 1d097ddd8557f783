"""The state directory of `workerctl dev`, which one instance uses at a time.

| path | holds |
|---|---|
| tenantry.db | the store, made by the edge and by `tenancy` |
| logs/NAME.log | what a child process wrote; `.previous` is from the start before |
| run/ | configurations, the node's socket; mode 0700, nothing of lasting value |
| dev.lock | locked as long as an instance runs; its process id |
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tenantry_runtime.errors import ConfigurationError

MAX_SOCKET_PATH_BYTES = 100
"""Linux allows 107, macOS 103."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDirectory:
    """A directory that is locked for this instance."""

    path: Path
    node_socket: Path

    @property
    def run(self) -> Path:
        return self.path / "run"

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"


@contextmanager
def claim(path: Path) -> Iterator[StateDirectory]:
    """Make the directory if need be, and lock it.

    Raise `ConfigurationError` when it is unusable, or in use by another instance.
    """
    path = path.absolute()
    with ExitStack() as stack:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in ("run", "logs"):
                (path / folder).mkdir(mode=0o700, exist_ok=True)
            stack.enter_context(_locked(path))
        except OSError as error:
            problem = f"the state directory {path} is unusable: {error.strerror}"
            raise ConfigurationError(problem) from error

        socket = path / "run" / "node.sock"
        if len(os.fsencode(socket)) > MAX_SOCKET_PATH_BYTES:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tenantry-"))
            socket = Path(folder) / "node.sock"
        yield StateDirectory(path=path, node_socket=socket)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with (path / "dev.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise ConfigurationError(
                f"process {lock.read().strip() or '?'} uses the state directory {path} already; "
                "end it, or choose another directory with --state-dir"
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield
