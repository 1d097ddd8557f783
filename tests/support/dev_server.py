"""`workerctl dev` as a user starts it: its own process, port, state and configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.command_line import PROGRAM
from support.http_peer import an_unused_port
from support.supervised import PATIENCE_S, Supervised, a_process
from tenantry.credentials import Credentials, load_credentials

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
    patience_s: float = PATIENCE_S,
    variables: Mapping[str, str] | None = None,
) -> Iterator[DevServer]:
    """Start one; leaving kills it if it still runs, and after `patience_s` in any case.

    `variables` are of its environment.
    """
    port = port or an_unused_port()
    options = ["--port", str(port), "--state-dir", str(folder / "state")]
    options += ["--catalog", str(catalog)] if catalog else []
    options += ["--demo"] if demo else []
    options += ["--pools"] if pools else []
    own = environment(folder) | dict(variables or {})
    with a_process(PROGRAM, "dev", *options, env=own, patience_s=patience_s) as supervised:
        yield DevServer(folder=folder, port=port, process=supervised.process)


def environment(folder: Path) -> dict[str, str]:
    """Of the server and its clients: nothing but the credentials file says where it is."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TENANTRY_")}
    return own | {"TENANTRY_CONFIG_DIR": str(folder / "config")}
