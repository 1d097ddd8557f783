"""`workerctl top`: what an edge and its nodes are doing, live."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from .installed import require_packages, runtime_imports
from .json_output import print_json
from .top_view import view

if TYPE_CHECKING:
    import httpx

    # a base install lacks what it imports
    from tenantry_runtime.edge.operator.report import Overview

TIMEOUT_S = 5.0


@click.command()
@click.option("--url", default="http://127.0.0.1:8787", show_default=True, help="Of the edge.")
@click.option(
    "--token",
    envvar="TENANTRY_OPERATOR_TOKEN",
    show_envvar=True,
    help="An admin token of the operator's account; asked for otherwise.",
)
@click.option("--interval", type=click.FloatRange(min=0.2), default=1.0, show_default=True)
@click.option("--once", is_flag=True, help="Print one view, with rates over one interval, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print what the edge says, once, as JSON.")
def top(url: str, token: str | None, interval: float, once: bool, as_json: bool) -> None:
    """Show members, batches, pages, tokens per second, tenants against their promise, and incidents.

    The deployment names the operator's account (`edge.operator`). Ctrl-C ends.
    """
    import httpx

    require_packages(["rich"])
    if not token and not sys.stdin.isatty():
        raise click.UsageError(
            "there is no terminal to ask at: say --token, or set TENANTRY_OPERATOR_TOKEN"
        )
    secret = token or click.prompt("Token", hide_input=True, err=True)
    with httpx.Client(
        base_url=url, headers={b"authorization": f"Bearer {secret}".encode()}, timeout=TIMEOUT_S
    ) as client:
        if as_json:
            print_json(_answer(client).json())
        elif once or not sys.stdout.isatty():
            _print_once(client, interval)
        else:
            _watch(client, interval)


def _print_once(client: httpx.Client, interval_s: float) -> None:
    from rich.console import Console

    looks = _looks(client, interval_s)
    before, after = next(looks), next(looks)
    Console().print(view(after, before))


def _watch(client: httpx.Client, interval_s: float) -> None:
    from rich.console import Console
    from rich.live import Live

    looks = _looks(client, interval_s)
    before = next(looks)
    with Live(view(before, None), console=Console(), screen=True, auto_refresh=False) as live:
        for after in looks:
            live.update(view(after, before), refresh=True)
            before = after


def _looks(client: httpx.Client, interval_s: float) -> Iterator[Overview]:
    """Yield what the edge says, once per interval."""
    import msgspec

    with runtime_imports():
        from tenantry_runtime.edge.operator.report import Overview

    due_s = time.monotonic()
    while True:
        yield msgspec.json.decode(_answer(client).content, type=Overview)
        due_s = max(due_s + interval_s, time.monotonic())
        time.sleep(max(due_s - time.monotonic(), 0))


def _answer(client: httpx.Client) -> httpx.Response:
    import httpx

    try:
        response = client.get("/operator/overview")
    except httpx.TransportError as error:
        raise click.ClickException(f"{client.base_url} does not answer: {error}") from error
    match response.status_code:
        case 200:
            return response
        case 401 | 403:
            raise click.ClickException(
                "the token is no admin token of the operator's account: workerctl token create "
                "ACCOUNT --scope admin"
            )
        case 404:
            raise click.ClickException(
                "this edge has no operator: name an account as `edge.operator` in its deployment"
            )
        case status:
            raise click.ClickException(f"{client.base_url} answered with {status}")
