"""The thread that keeps a folder's worker deployed, and the one that shows what it does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click

from tenantry.credentials import credentials_path, load_credentials
from tenantry.errors import ConfigurationError
from tenantry_cli.workers.access import Account, Source
from tenantry_cli.workers.api import ControlPlane, Refused, Unreachable
from tenantry_cli.workers.bundle import make_bundle, sources
from tenantry_cli.workers.config import (
    ConfigFile,
    Project,
    load_project,
    locate_config,
    read_config,
)
from tenantry_cli.workers.output import Screen
from tenantry_cli.workers.output.screen import color
from tenantry_cli.workers.publish import deploy
from tenantry_cli.workers.record_lines import record_lines
from tenantry_cli.workers.tailing import Wanted, tail

from .changes import Snapshot, changed, snapshot
from .local import local_project, local_wishes, secrets_files

POLL_S = 0.25
"""Between two looks: less than a person takes from the editor to the browser."""

MAX_LOOKING = 0.05
"""Part of the time that looking may take; with many files it is done more rarely."""

LIVE_S = 1.0
"""After which a deploy is live at every edge; before that a person might see the version before."""

REOPEN_S = 2.0
"""Until a tail that the runtime has ended is asked for anew: a runtime that ends is gone by then."""


@contextmanager
def live_worker(
    folder: Path,
    *,
    port: int,
    config: Path | None = None,
    environment: str | None = None,
    say: Callable[[str], None] = click.echo,
) -> Generator[None, None, None]:
    """Keep the worker of a folder deployed to the runtime at `port` of this machine, until the end.

    There may be no worker in the folder: then nothing happens. What is wrong with one is said, and
    waited for to change.
    """
    located = (config.absolute(),) if config else locate_config(folder)
    if not located:
        yield
        return
    live = LiveWorker(path=located[0], environment=environment, port=port, say=say)
    threads = [threading.Thread(target=run) for run in (live.keep_deployed, live.show_records)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        live.stop()
        for thread in threads:
            thread.join()


@dataclass(eq=False)
class LiveWorker:
    """What both threads know."""

    path: Path
    """Of the configuration."""
    environment: str | None
    port: int
    say: Callable[[str], None]
    _stopped: threading.Event = field(default_factory=threading.Event)
    _deployed: threading.Event = field(default_factory=threading.Event)
    _name: str = ""
    _digest: str = ""
    _sources: list[Path] = field(default_factory=list[Path])
    """The worker's files, as its configuration last named them."""

    def stop(self) -> None:
        """Let both threads end."""
        self._stopped.set()
        self._deployed.set()

    def keep_deployed(self) -> None:
        """Deploy, and again at every change, until stopped."""
        account = self._until_ready()
        seen: Snapshot = {}
        while account is not None and not self._stopped.is_set():
            began_s = time.monotonic()
            now = snapshot(self._watched())
            look_s = time.monotonic() - began_s
            if now != seen:
                self._say_changes(seen, now)
                with ControlPlane(account) as plane:
                    self._try_deploy(plane)
                # what changed meanwhile is seen in the next look
                seen = now
            self._stopped.wait(max(POLL_S, look_s / MAX_LOOKING))

    def show_records(self) -> None:
        """Show what the worker does, until stopped."""
        self._deployed.wait()
        while not self._stopped.is_set():
            account = self._account()
            if account is not None:
                with ControlPlane(account) as plane:
                    self._show(plane)
            self._stopped.wait(REOPEN_S)

    def _show(self, plane: ControlPlane) -> None:
        name = self._name

        def is_over() -> bool:
            return self._stopped.is_set() or self._name != name

        try:
            with tail(plane, name, Wanted(), is_over=is_over) as records:
                for record in records:
                    self.say("\n".join(_shown(line) for line in record_lines(record)))
        except click.ClickException:
            # the runtime restarts or ends: it is asked again until it is there, or all is over
            return

    def _until_ready(self) -> Account | None:
        """Return the account of the runtime once it answers; None when all is over before."""
        is_said = False
        while not self._stopped.is_set():
            account = self._account()
            if account is not None:
                try:
                    with ControlPlane(account) as plane:
                        plane.get("/workers/subdomain", dict[str, object])
                    return account
                except Unreachable:
                    pass
                except Refused as refusal:
                    # a token that an earlier start left is replaced in a moment
                    if refusal.status not in (401, 403, 404) and not is_said:
                        self._say_error(refusal.message)
                        is_said = True
            self._stopped.wait(POLL_S)
        return None

    def _account(self) -> Account | None:
        try:
            left = load_credentials(credentials_path())
        except ConfigurationError:
            return None
        if left is None or f":{self.port}/" not in left.base_url:
            return None
        return Account(
            base_url=left.base_url.rstrip("/"),
            account_id=left.account_id,
            api_token=left.api_token,
            source=Source.DEV,
        )

    def _watched(self) -> list[Path]:
        try:
            self._sources = [*sources(self._project())]
        except click.ClickException:
            # what is wrong is said at the deploy; the files are those of before
            pass
        return [self.path, *secrets_files(self.path.parent), *self._sources]

    def _project(self) -> Project:
        file: ConfigFile = read_config(self.path)
        return load_project(file, environment=self.environment)

    def _try_deploy(self, plane: ControlPlane) -> None:
        started_s = time.monotonic()
        try:
            project = self._project()
            bundle = make_bundle(project)
            wishes = local_wishes(project.root)
            local = local_project(plane, project)
            digest = f"{bundle.digest} {local} {dict(wishes.secrets)}"
            if digest == self._digest:
                return
            deployed = deploy(plane, local, bundle, wishes, Screen(as_json=True))
        except click.ClickException as error:
            self._say_error(error.message)
            return
        except OSError as error:
            # a file that an editor has just moved away: its next change is seen
            self._say_error(str(error))
            return
        is_first = not self._digest
        self._digest, self._name = digest, project.name
        self._deployed.set()
        if not is_first:
            self._stopped.wait(LIVE_S)
        took_ms = (time.monotonic() - started_s) * 1000
        self._line(f"Ready at {deployed.urls[0]} ({took_ms:.0f} ms)", fg="green")

    def _say_changes(self, before: Snapshot, now: Snapshot) -> None:
        if not before:
            self._line(f"Deploying the worker of {self.path}", dim=True)
        else:
            names = [path.name for path in changed(before, now)]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self._line(f"{', '.join(names[:3])}{more} changed", dim=True)

    def _say_error(self, problem: str) -> None:
        self._line(f"Error: {problem}", fg="red")

    def _line(self, text: str, *, fg: str | None = None, dim: bool | None = None) -> None:
        self.say(_shown(click.style(f"[worker] {text}", fg=fg, dim=dim)))


def _shown(text: str) -> str:
    return click.unstyle(text) if color() is False else text
