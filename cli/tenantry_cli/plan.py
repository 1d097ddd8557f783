"""`workerctl plan`: what tenants are promised and held to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .confirm import confirm
from .json_output import print_json
from .moments import iso
from .operator import StoreAddress, store_options, use_store
from .promises import warn_of_promises
from .tables import columns
from .terms_options import GivenTerms, terms_options
from .terms_table import terms_table

if TYPE_CHECKING:
    # a base install lacks what it imports
    from tenantry_runtime.tenancy import Store, StoredPlan

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def plan() -> None:
    """Keep plans: limits and shares, which any number of tenants may have.

    `unlimited`, `standard` and `free` are there from the start. A change holds from the next request
    of each tenant on.
    """


@plan.command()
@click.argument("plan_id", metavar="PLAN")
@terms_options("plan")
@store_options
def create(plan_id: str, given: GivenTerms, store_at: StoreAddress) -> None:
    """Create PLAN. What is not given is unlimited.

    \b
    workerctl plan create team --requests-per-minute 60 --daily-neurons 50000 --guaranteed 0.2
    """
    changes = given.changes()

    async def work(store: Store) -> StoredPlan:
        return await store.plans.create(plan_id, changes)

    _show(use_store(store_at, work, makes=True))


@plan.command("list")
@_json
@store_options
def list_command(as_json: bool, store_at: StoreAddress) -> None:
    """List all plans."""

    async def work(store: Store) -> list[StoredPlan]:
        return await store.plans.list()

    plans = use_store(store_at, work)
    if as_json:
        print_json([_document(each) for each in plans])
        return
    header = ("PLAN", "TENANTS", "WEIGHT", "GUARANTEED", "CEILING", "REQUESTS/MIN", "NEURONS/DAY")
    rows = [(each.id, str(each.num_accounts), *_summary(each)) for each in plans]
    click.echo(columns([header, *rows], right_aligned={1, 2, 3, 4, 5, 6}))


@plan.command()
@click.argument("plan_id", metavar="PLAN")
@_json
@store_options
def show(plan_id: str, as_json: bool, store_at: StoreAddress) -> None:
    """Show all terms of PLAN."""

    async def work(store: Store) -> StoredPlan:
        return await store.plans.get(plan_id)

    found = use_store(store_at, work)
    if as_json:
        print_json(_document(found))
    else:
        _show(found)


@plan.command("set")
@click.argument("plan_id", metavar="PLAN")
@terms_options("plan")
@store_options
def set_command(plan_id: str, given: GivenTerms, store_at: StoreAddress) -> None:
    """Change terms of PLAN, for all that have it. The first limit of a --model starts as the others'.

    \b
    workerctl plan set standard --requests-per-minute 120
    workerctl plan set standard --model glm-5.2 --concurrent-requests 4
    workerctl plan set standard --tokens-per-minute unlimited
    """
    changes = given.changes()
    if not changes:
        raise click.UsageError("say what to change, as --requests-per-minute 120")

    async def work(store: Store) -> StoredPlan:
        found = await store.plans.change(plan_id, changes)
        if given.concerns_guarantees:
            await warn_of_promises(store)
        return found

    _show(use_store(store_at, work))


@plan.command()
@click.argument("plan_id", metavar="PLAN")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_options
def delete(plan_id: str, yes: bool, store_at: StoreAddress) -> None:
    """Delete PLAN, which no tenant has."""
    confirm(f"Delete plan {plan_id}?", yes=yes, is_final=True)

    async def work(store: Store) -> None:
        await store.plans.delete(plan_id)

    use_store(store_at, work)
    click.echo(f"deleted {plan_id}")


def _show(found: StoredPlan) -> None:
    tenants = "tenant" if found.num_accounts == 1 else "tenants"
    click.echo(f"{found.id}: {found.num_accounts} {tenants}\n")
    click.echo(terms_table(found.terms))


# Any: as JSON has it
def _document(found: StoredPlan) -> dict[str, Any]:
    return {
        "id": found.id,
        "tenants": found.num_accounts,
        "created": iso(found.created_ms),
        "terms": found.terms,
    }


def _summary(found: StoredPlan) -> tuple[str, ...]:
    share, quota = found.terms.share, found.terms.quota
    limits = (quota.requests_per_minute, found.terms.daily_neurons)
    return (
        *(f"{number:g}" for number in (share.weight, share.guaranteed, share.ceiling)),
        *("-" if limit is None else f"{limit:,.0f}" for limit in limits),
    )
