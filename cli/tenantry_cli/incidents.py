"""`workerctl incidents`: cache pages that were not what a sequence had them for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .json_output import print_json
from .moments import iso, shown
from .operator import StoreAddress, store_options, use_store
from .tables import columns

if TYPE_CHECKING:
    # a base install lacks what it imports
    from tenantry_runtime.tenancy import Store, StoredIncident


@click.command()
@click.option("--tenant", metavar="TENANT", help="Those that befell its requests.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many to list."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@store_options
def incidents(tenant: str | None, limit: int, as_json: bool, store_at: StoreAddress) -> None:
    """List pages that failed their check, the latest first. Nothing of them reached a client."""

    async def work(store: Store) -> list[StoredIncident]:
        return await store.incidents.list(account=tenant, limit=limit)

    found = use_store(store_at, work)
    if as_json:
        print_json([_document(each) for each in found])
    elif not found:
        click.echo("none")
    else:
        click.echo(_table(found))


def _table(found: list[StoredIncident]) -> str:
    header = ("TIME", "NODE", "MODEL", "TENANT", "REQUEST", "STEP", "OP", "PAGE", "DIFFERS IN")
    rows = [
        (
            shown(each.time_ms),
            each.node,
            each.model,
            each.account_id,
            each.request_id,
            str(each.step),
            each.op,
            "-" if each.logical_page is None else str(each.logical_page),
            ", ".join(each.found),
        )
        for each in found
    ]
    return columns([header, *rows], right_aligned={5, 7})


def _document(each: StoredIncident) -> dict[str, object]:
    return {
        "id": each.id,
        "time": iso(each.time_ms),
        "node": each.node,
        "model": each.model,
        "tenant": each.account_id,
        "request": each.request_id,
        "step": each.step,
        "op": each.op,
        "logical_page": each.logical_page,
        "page": each.page,
        "found": list(each.found),
    }
