"""What `workerctl dev` tells the person in front of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from tenantry_runtime.catalog import CatalogEntry

from .address import Address

QUESTION = "What is 17 + 25?"


class Console:
    """Writes lines, each at once."""

    def __init__(self, *, out: TextIO, errors: TextIO) -> None:
        self._out = out
        self._errors = errors

    def write(self, text: str) -> None:
        _write(self._out, text)

    def line(self, text: str = "") -> None:
        self.write(f"{text}\n")

    def error(self, problem: str) -> None:
        _write(self._errors, f"Error: {problem}\n")

    def starting(self, entries: Sequence[CatalogEntry], state_dir: Path) -> None:
        self.line(f"Starting {_listed([short_name(entry) for entry in entries])} on this machine")
        self.line(f"State and logs: {state_dir}")

    def still_starting(self, log: Path) -> None:
        self.line(f"Still loading; what the node says is in {log}")

    def ready(
        self,
        *,
        entries: Sequence[CatalogEntry],
        address: Address,
        account: str,
        credentials: Path,
        curl_config: Path,
        took_s: float,
    ) -> None:
        name = short_name(entries[0])
        url = f"{address.url}/client/v4/accounts/{account}/ai/run/{entries[0].id}"
        self.line(f"Ready after {took_s:.1f} s")
        self.line()
        width = max(len(short_name(entry)) for entry in entries)
        for entry in entries:
            self.line(f"  {short_name(entry):{width}}  {entry.id}")
        self.line(f"  at {address.url}/client/v4, account {account}")
        self.line(f"  credentials for SDK and workerctl: {credentials}")
        self.line()
        self.line("Try in another terminal:")
        self.line()
        self.line(f'  workerctl ai run {name} "{QUESTION}"')
        self.line()
        self.line(f"  curl --config '{curl_config}' '{url}' \\")
        self.line(f"""    --data '{{"prompt": "{QUESTION}"}}'""")
        self.line()
        self.line(
            f"""  python -c 'from tenantry import AI; print(AI().run("{name}", """
            f"""{{"prompt": "{QUESTION}"}}).text)'"""
        )
        self.line()
        self.line("Ctrl-C ends everything.")

    def died(self, name: str, how: str, log: Path, tail: Sequence[str]) -> None:
        lines = [f"the {name} {how}; its last lines (all: {log}):", *tail]
        self.error("\n  ".join(lines))


def short_name(entry: CatalogEntry) -> str:
    """The name to type: an alias if there is one."""
    return entry.aliases[0] if entry.aliases else entry.id


def _write(stream: TextIO, text: str) -> None:
    # a closed pipe silences the lines, not the serving
    with contextlib.suppress(BrokenPipeError):
        stream.write(text)
        stream.flush()


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
