"""What `workerctl dev` tells the person in front of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tenantry_runtime.catalog import CatalogEntry
from tenantry_runtime.supervisor.address import Address
from tenantry_runtime.supervisor.console import Console, listed

QUESTION = "What is 17 + 25?"


def say_starting(console: Console, entries: Sequence[CatalogEntry], state_dir: Path) -> None:
    console.line(f"Starting {listed([short_name(entry) for entry in entries])} on this machine")
    console.line(f"State and logs: {state_dir}")


def say_still_starting(console: Console, nodes: Sequence[str], logs: Sequence[Path]) -> None:
    says = "says" if len(nodes) == 1 else "say"
    console.line(
        f"Still loading; what the {listed(nodes)} {says} is in {listed([str(log) for log in logs])}"
    )


def say_ready(
    console: Console,
    *,
    entries: Sequence[CatalogEntry],
    address: Address,
    account: str,
    credentials: Path,
    curl_config: Path,
    took_s: float,
    workers_url: str | None = None,
    edge_log: Path,
) -> None:
    """Say what is there, and how to use it; `workers_url` None: workers do not run here."""
    name = short_name(entries[0])
    url = f"{address.api_url}/accounts/{account}/ai/run/{entries[0].id}"
    console.line(f"Ready after {took_s:.1f} s")
    console.line()
    width = max(len(short_name(entry)) for entry in entries)
    for entry in entries:
        console.line(f"  {short_name(entry):{width}}  {entry.id}")
    console.line(f"  at {address.api_url}, account {account}")
    console.line(f"  credentials for SDK and workerctl: {credentials}")
    if workers_url is not None:
        console.line(f"  workers at {workers_url}, once workerctl deploy has put them there")
    else:
        console.line(f"  no workers: {edge_log} says why; --unsafe-no-sandbox runs your own anyway")
    console.line()
    console.line("Try in another terminal:")
    console.line()
    console.line(f'  workerctl ai run {name} "{QUESTION}"')
    console.line()
    console.line(f"  curl --config '{curl_config}' '{url}' \\")
    console.line(f"""    --data '{{"prompt": "{QUESTION}"}}'""")
    console.line()
    console.line(
        f"""  python -c 'from tenantry import AI; print(AI().run("{name}", """
        f"""{{"prompt": "{QUESTION}"}}).text)'"""
    )
    console.line()
    console.line("Ctrl-C ends everything.")


def short_name(entry: CatalogEntry) -> str:
    """The name to type: an alias if there is one."""
    return entry.aliases[0] if entry.aliases else entry.id
