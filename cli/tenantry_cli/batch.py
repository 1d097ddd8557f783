"""`workerctl batch`: requests that wait for spare capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .json_output import print_json
from .moments import iso, shown
from .operator import StoreAddress, store_options, use_store
from .tables import columns

if TYPE_CHECKING:
    # a base install lacks what it imports
    from tenantry_runtime.tenancy import Store
    from tenantry_runtime.tenancy.batches import Batch

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def batch() -> None:
    """Look at batches of requests that tenants have queued, and cancel them."""


@batch.command("list")
@click.argument("account", metavar="[TENANT]", required=False)
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many to list."
)
@_json
@store_options
def list_(account: str | None, limit: int, as_json: bool, store_at: StoreAddress) -> None:
    """List batches, of TENANT or of all, the latest first. Complete ones stay for a day."""

    async def work(store: Store) -> list[Batch]:
        return await store.batches.list(account=account, limit=limit)

    found = use_store(store_at, work)
    if as_json:
        print_json([_document(each) for each in found])
    elif not found:
        click.echo("none")
    else:
        click.echo(_table(found))


@batch.command()
@click.argument("batch_id", metavar="BATCH")
@_json
@store_options
def show(batch_id: str, as_json: bool, store_at: StoreAddress) -> None:
    """Show where a batch stands. What its tenant asked, and was answered, is not shown."""

    async def work(store: Store) -> Batch | None:
        return await store.batches.find(batch_id)

    found = use_store(store_at, work)
    if found is None:
        raise click.ClickException(f"there is no batch {batch_id!r}; `workerctl batch list`")
    if as_json:
        print_json(_document(found))
    else:
        click.echo(
            columns(
                [(name, str(value)) for name, value in _document(found).items()],
                right_aligned=set(),
            )
        )


@batch.command()
@click.argument("batch_id", metavar="BATCH")
@store_options
def cancel(batch_id: str, store_at: StoreAddress) -> None:
    """Answer all that is left of a batch with an error; what runs is broken off, and costs nothing."""

    async def work(store: Store) -> int:
        return await store.batches.cancel(batch_id)

    click.echo(f"canceled {use_store(store_at, work)} requests")


def _table(found: list[Batch]) -> str:
    header = ("BATCH", "TENANT", "MODEL", "STATUS", "DONE", "OF", "CREATED", "ENDED")
    rows = [
        (
            each.id,
            each.account_id,
            each.model,
            each.status,
            str(each.num_done),
            str(each.num_requests),
            shown(each.created_ms),
            "-" if each.ended_ms is None else shown(each.ended_ms),
        )
        for each in found
    ]
    return columns([header, *rows], right_aligned={4, 5})


def _document(each: Batch) -> dict[str, object]:
    return {
        "id": each.id,
        "tenant": each.account_id,
        "model": each.model,
        "status": each.status,
        "requests": each.num_requests,
        "done": each.num_done,
        "bytes": each.num_bytes,
        "prompt_tokens": each.prompt_tokens,
        "completion_tokens": each.completion_tokens,
        "created": iso(each.created_ms),
        "started": None if each.started_ms is None else iso(each.started_ms),
        "ended": None if each.ended_ms is None else iso(each.ended_ms),
    }
