"""`workerctl usage`: what tenants have used, and what that costs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from .json_output import print_json
from .moments import iso, shown
from .operator import StoreAddress, store_options, use_store
from .tables import columns

if TYPE_CHECKING:
    # a base install lacks what it imports
    from tenantry_runtime.tenancy import Store
    from tenantry_runtime.tenancy.ledger.record import UsageRecord
    from tenantry_runtime.tenancy.ledger.report import UsageSum

Key: TypeAlias = Literal["day", "model", "worker", "tenant"]

_DAY = click.DateTime(["%Y-%m-%d"])

_PICO = 10**12


@click.command()
@click.option("--tenant", metavar="TENANT", help="What it used; default: all of them.")
@click.option("--from", "first", type=_DAY, metavar="DAY", help="First day, YYYY-MM-DD in UTC.")
@click.option("--to", "last", type=_DAY, metavar="DAY", help="Last day.")
@click.option(
    "--by",
    type=click.Choice(["day", "model", "worker", "tenant"]),
    default="day",
    show_default=True,
    help="One line for each.",
)
@click.option(
    "--requests", is_flag=True, help="The records of the latest requests instead of sums."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many of them to list.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@store_options
def usage(
    tenant: str | None,
    first: datetime | None,
    last: datetime | None,
    by: Key,
    requests: bool,
    limit: int,
    as_json: bool,
    store_at: StoreAddress,
) -> None:
    """Say what has been used. A request counts on the day on which it ended.

    \b
    workerctl usage --by tenant --from 2027-01-01 --to 2027-01-31
    workerctl usage --tenant acme --requests
    """
    if first is not None and last is not None and last < first:
        raise click.UsageError("--to is before --from")
    if requests:
        records = use_store(store_at, lambda store: _records(store, tenant, first, last, limit))
        _print_records(records, as_json)
    else:
        sums = use_store(store_at, lambda store: _sums(store, by, tenant, first, last))
        _print_sums(sums, by, as_json)


async def _sums(
    store: Store, by: Key, tenant: str | None, first: datetime | None, last: datetime | None
) -> list[UsageSum]:
    from tenantry_runtime.tenancy.ledger.report import By, Period, usage_sums

    period = Period(first=first and first.date(), last=last and last.date())
    return await usage_sums(store.database, By(by), tenant=tenant, period=period)


async def _records(
    store: Store,
    tenant: str | None,
    first: datetime | None,
    last: datetime | None,
    limit: int,
) -> list[UsageRecord]:
    from tenantry_runtime.tenancy.ledger.report import Period, usage_records

    period = Period(first=first and first.date(), last=last and last.date())
    return await usage_records(store.database, tenant=tenant, period=period, limit=limit)


def _print_sums(sums: list[UsageSum], by: Key, as_json: bool) -> None:
    if as_json:
        print_json([_sum_document(each, by) for each in sums])
        return
    if not sums:
        click.echo("nothing was used")
        return
    header = (by.upper(), "REQUESTS", "INPUT", "CACHED", "OUTPUT", "REASONING", "NEURONS", "USD")
    rows = [_row(each.key or "-", [each]) for each in sums]
    if len(sums) > 1:
        rows.append(_row("total", sums))
    click.echo(columns([header, *rows], right_aligned={1, 2, 3, 4, 5, 6, 7}))


def _row(key: str, sums: list[UsageSum]) -> tuple[str, ...]:
    names = ("requests", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
    counts = [sum(getattr(each, name) for each in sums) for name in names]
    return (
        key,
        *(f"{count:,}" for count in counts),
        f"{sum(each.neurons for each in sums):,.2f}",
        _usd(sum(each.cost for each in sums)),
    )


def _usd(pico: int) -> str:
    return f"{pico / _PICO:,.6f}"


# Any: as JSON has it
def _sum_document(each: UsageSum, by: Key) -> dict[str, Any]:
    return {
        by: each.key,
        "requests": each.requests,
        "input_tokens": each.input_tokens,
        "cached_tokens": each.cached_tokens,
        "output_tokens": each.output_tokens,
        "reasoning_tokens": each.reasoning_tokens,
        "neurons": each.neurons,
        "cost_pico_usd": each.cost,
    }


def _print_records(records: list[UsageRecord], as_json: bool) -> None:
    if as_json:
        print_json([_record_document(each) for each in records])
        return
    if not records:
        click.echo("no requests")
        return
    header = (
        *("ENDED", "REQUEST", "TENANT", "MODEL", "OUTCOME"),
        *("INPUT", "CACHED", "OUTPUT", "REASONING", "USD"),
    )
    rows = [
        (
            shown(each.ended_ms),
            each.request_id,
            each.account_id,
            each.model,
            each.outcome,
            f"{each.input_tokens:,}",
            f"{each.cached_tokens:,}",
            f"{each.output_tokens:,}",
            f"{each.reasoning_tokens:,}",
            _usd(each.cost),
        )
        for each in records
    ]
    click.echo(columns([header, *rows], right_aligned={5, 6, 7, 8, 9}))


def _record_document(each: UsageRecord) -> dict[str, Any]:
    return {
        "request": each.request_id,
        "tenant": each.account_id,
        "token": each.token_id,
        "model": each.model,
        "worker": each.worker,
        "worker_version": each.worker_version,
        "started": iso(each.started_ms),
        "ended": iso(each.ended_ms),
        "outcome": each.outcome,
        "input_tokens": each.input_tokens,
        "cached_tokens": each.cached_tokens,
        "output_tokens": each.output_tokens,
        "reasoning_tokens": each.reasoning_tokens,
        "prices_pico_usd": {
            "input": each.input_price,
            "cached": each.cached_price,
            "output": each.output_price,
        },
        "cost_pico_usd": each.cost,
        "revision": each.revision,
        "formats": each.formats,
        "trace": each.trace_id,
    }
