"""`workerctl dev` as a user starts it: its own process, port, state and configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.command_line import PROGRAM
from support.http_peer import an_unused_port
from support.supervised import PATIENCE_S, Supervised, a_process
from tenantry.credentials import Credentials, load_credentials

__all__ = ["LAST_LINE", "PATIENCE_S", "DevServer", "a_dev_server", "environment"]

SERVE = """
import sys
from pathlib import Path
from tenantry_runtime.dev import serve
port, state_dir, *catalog = sys.argv[1:]
sys.exit(
    serve(
        port=int(port),
        state_dir=Path(state_dir),
        catalog=Path(catalog[0]) if catalog else None,
        demo=not catalog,
    )
)
"""

LAST_LINE = "Ctrl-C ends everything."


@dataclass(slots=True, kw_only=True)
class DevServer(Supervised):
    folder: Path
    port: int

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.folder)

    @property
    def credentials(self) -> Credentials:
        credentials = load_credentials(self.folder / "config" / "credentials.json")
        assert credentials is not None
        return credentials


@contextmanager
def a_dev_server(
    folder: Path,
    *,
    port: int | None = None,
    catalog: Path | None = None,
    demo: bool = False,
    pools: bool = False,
) -> Iterator[DevServer]:
    """Start one; leaving kills it if it still runs, and after `PATIENCE_S` in any case.

    With a catalog, or a demo of the built-in one, it is started by `serve`, since the command has
    no such options.
    """
    port = port or an_unused_port()
    state_dir = folder / "state"
    if demo or catalog:
        arguments = [SERVE, str(port), str(state_dir), *([str(catalog)] if catalog else [])]
    else:
        arguments = [PROGRAM, "dev", "--port", str(port), "--state-dir", str(state_dir)]
        arguments += ["--pools"] if pools else []
    with a_process(*arguments, env=environment(folder)) as supervised:
        yield DevServer(folder=folder, port=port, process=supervised.process)


def environment(folder: Path) -> dict[str, str]:
    """Of the server and its clients: nothing but the credentials file says where it is."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TENANTRY_")}
    return own | {"TENANTRY_CONFIG_DIR": str(folder / "config")}
