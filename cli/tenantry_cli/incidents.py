"""`workerctl incidents`: what went wrong with nodes and tenants."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import click

from .json_output import print_json
from .moments import Duration, iso, shown
from .operator import StoreAddress, store_options, use_store
from .tables import columns

if TYPE_CHECKING:
    # a base install lacks what it imports
    from tenantry_runtime.tenancy import IncidentRecord, Store

KINDS = ("integrity", "node_lost", "drain", "quota_storm")

ID_CHARS = 12
"""Of an id, in a list: `show` takes as few as tell it from others."""

NUM_SEARCHED = 1000
"""The latest, among which a mistyped id is looked for."""

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def incidents() -> None:
    """Look at what went wrong: mismatched pages, lost nodes, drains, storms of refusals."""


@incidents.command("list")
@click.option("--kind", type=click.Choice(KINDS), help="Those alone.")
@click.option("--tenant", metavar="TENANT", help="Those that befell its requests.")
@click.option(
    "--since", "since_ms", type=Duration(), metavar="TIME", help="How far back, as 12h or 7d."
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many to list."
)
@_json
@store_options
def list_(
    kind: str | None,
    tenant: str | None,
    since_ms: int | None,
    limit: int,
    as_json: bool,
    store_at: StoreAddress,
) -> None:
    """List incidents, the latest first. `edge.incidents` says how long they are kept.

    \b
    workerctl incidents list --kind node_lost --since 7d
    """
    first_ms = 0 if since_ms is None else time.time_ns() // 1_000_000 - since_ms

    async def work(store: Store) -> list[IncidentRecord]:
        from tenantry_runtime.tenancy import IncidentKind

        if tenant is not None:
            # one that is not there is said, rather than shown as spared
            await store.accounts.get(tenant)
        wanted = None if kind is None else IncidentKind(kind)
        return await store.incidents.list(
            kind=wanted, account=tenant, since_ms=first_ms, limit=limit
        )

    found = use_store(store_at, work)
    if as_json:
        print_json([_document(each) for each in found])
    elif not found:
        click.echo("none")
    else:
        click.echo(_table(found))


@incidents.command()
@click.argument("incident_id", metavar="INCIDENT")
@_json
@store_options
def show(incident_id: str, as_json: bool, store_at: StoreAddress) -> None:
    """Show one incident, by its id or the beginning of it. What requests said is nowhere in it."""

    async def work(store: Store) -> IncidentRecord:
        # an empty id would be how all begin
        found = await store.incidents.named(incident_id) if incident_id else ()
        if len(found) == 1:
            return found[0]
        if found:
            ids = " and ".join(each.id for each in found)
            raise click.ClickException(
                f"{incident_id!r} is how several incidents begin, {ids}; write more of it"
            )
        hint = _nearest(incident_id, await store.incidents.list(limit=NUM_SEARCHED))
        raise click.ClickException(f"there is no incident {incident_id!r}; {hint}")

    found = use_store(store_at, work)
    if as_json:
        print_json(_document(found))
    else:
        click.echo(columns(_lines(found), right_aligned=set()))


def _nearest(incident_id: str, latest: list[IncidentRecord]) -> str:
    from difflib import get_close_matches

    # of as many characters: an id may be typed as the list shows it
    ids = [each.id[: len(incident_id)] for each in latest]
    near = get_close_matches(incident_id, ids, n=1)
    return f"did you mean {near[0]}?" if near else "`workerctl incidents list`"


def _table(found: list[IncidentRecord]) -> str:
    header = ("INCIDENT", "BEGAN", "ENDED", "KIND", "NODE", "TENANTS", "DETAIL")
    rows = [
        (
            each.id[:ID_CHARS],
            shown(each.began_ms),
            shown(each.ended_ms),
            each.kind,
            each.node or "-",
            ", ".join(each.tenants) or "-",
            each.detail,
        )
        for each in found
    ]
    return columns([header, *rows], right_aligned=set())


def _lines(found: IncidentRecord) -> list[tuple[str, str]]:
    """Return names and values; of a list, a line for each."""
    lines: list[tuple[str, str]] = []
    for name, value in [*_document(found).items(), *found.facts.items()]:
        if name != "facts":
            first, *rest = _texts(value)
            lines += [(name, first), *(("", text) for text in rest)]
    return lines


def _texts(value: object) -> list[str]:
    if isinstance(value, list):
        texts = [str(each) for each in cast("list[object]", value)]
    else:
        texts = [] if value in (None, "") else [str(value)]
    return texts or ["-"]


def _document(each: IncidentRecord) -> dict[str, object]:
    return {
        "id": each.id,
        "kind": str(each.kind),
        "began": iso(each.began_ms),
        "seen": iso(each.seen_ms),
        "ended": iso(each.ended_ms),
        "edge": each.edge,
        "node": each.node,
        "model": each.model,
        "detail": each.detail,
        "facts": dict(each.facts),
        "tenants": list(each.tenants),
        "requests": list(each.request_ids),
        "traces": list(each.trace_ids),
    }
