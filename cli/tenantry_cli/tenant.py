"""`workerctl tenant`: the accounts of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .confirm import confirm
from .json_output import print_json
from .moments import iso, shown
from .operator import StoreAddress, store_options, use_store
from .promises import warn_of_promises
from .secret import secret
from .tables import columns
from .terms_options import GivenTerms, terms_options
from .terms_table import terms_table

if TYPE_CHECKING:
    # a base install lacks what it imports
    from tenantry_runtime.tenancy import Account, Store

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def tenant() -> None:
    """Keep tenants: who may call, on which plan, with which exceptions from it."""


@tenant.command()
@click.argument("account", metavar="TENANT")
@click.option("--name", help="What people call it; default: TENANT.")
@click.option("--plan", "plan_id", default="unlimited", show_default=True, metavar="PLAN")
@terms_options("tenant")
@store_options
def create(
    account: str, name: str | None, plan_id: str, given: GivenTerms, store_at: StoreAddress
) -> None:
    """Create TENANT. Limits that are given beat those of its plan.

    \b
    workerctl tenant create acme --plan standard --weight 2
    workerctl token create acme
    """
    changes = given.changes()

    async def work(store: Store) -> None:
        await store.accounts.create(account, name=name, plan_id=plan_id, changes=changes)
        await warn_of_promises(store)

    use_store(store_at, work, makes=True)
    click.echo(f"created {account}; its first token: workerctl token create {account}")


@tenant.command("list")
@click.option("--all", "deleted", is_flag=True, help="Those that are deleted too.")
@_json
@store_options
def list_command(deleted: bool, as_json: bool, store_at: StoreAddress) -> None:
    """List all tenants."""

    async def work(store: Store) -> list[Account]:
        return await store.accounts.list(deleted=deleted)

    accounts = use_store(store_at, work)
    if as_json:
        print_json([_document(each) for each in accounts])
        return
    header = ("TENANT", "NAME", "PLAN", "STATE", "CREATED")
    rows = [
        (each.id, each.name, _plan(each), _state(each), shown(each.created_ms)) for each in accounts
    ]
    click.echo(columns([header, *rows], right_aligned=set()))


@tenant.command()
@click.argument("account", metavar="TENANT")
@_json
@store_options
def show(account: str, as_json: bool, store_at: StoreAddress) -> None:
    """Show TENANT and the terms that hold for it."""

    async def work(store: Store) -> tuple[Account, int]:
        found = await store.accounts.get(account)
        return found, len(await store.tokens.list(account))

    found, num_tokens = use_store(store_at, work)
    if as_json:
        print_json({**_document(found), "tokens": num_tokens})
        return
    rows = [
        ("tenant", found.id),
        ("name", found.name),
        ("plan", found.plan_id),
        ("state", _state(found)),
        ("created", shown(found.created_ms)),
        ("tokens", str(num_tokens)),
    ]
    click.echo(columns(rows, right_aligned=set()))
    click.echo()
    click.echo(terms_table(found.terms, _own(found)))


@tenant.command("set")
@click.argument("account", metavar="TENANT")
@click.option("--name", help="What people call it.")
@click.option("--plan", "plan_id", metavar="PLAN", help="Its plan; exceptions stay.")
@terms_options("tenant")
@store_options
def set_command(
    account: str,
    name: str | None,
    plan_id: str | None,
    given: GivenTerms,
    store_at: StoreAddress,
) -> None:
    """Change TENANT, from its next request on. A limit of `plan` is as its plan has it again.

    \b
    workerctl tenant set acme --plan standard --requests-per-minute plan
    workerctl tenant set acme --model glm-5.2 --tokens-per-minute 100000
    """
    changes = given.changes()
    if not changes and name is None and plan_id is None:
        raise click.UsageError("say what to change, as --plan standard")

    async def work(store: Store) -> Account:
        changed = await store.accounts.change(account, name=name, plan_id=plan_id, changes=changes)
        if given.concerns_guarantees or plan_id is not None:
            await warn_of_promises(store)
        return changed

    changed = use_store(store_at, work)
    click.echo(terms_table(changed.terms, _own(changed)))


@tenant.command()
@click.argument("account", metavar="TENANT")
@store_options
def suspend(account: str, store_at: StoreAddress) -> None:
    """Refuse what TENANT asks from now on. What runs goes on to its end."""

    async def work(store: Store) -> None:
        await store.accounts.suspend(account)

    use_store(store_at, work)
    click.echo(f"suspended {account}")


@tenant.command()
@click.argument("account", metavar="TENANT")
@store_options
def resume(account: str, store_at: StoreAddress) -> None:
    """Let TENANT call again."""

    async def work(store: Store) -> None:
        await store.accounts.resume(account)

    use_store(store_at, work)
    click.echo(f"resumed {account}")


@tenant.command()
@click.argument("account", metavar="TENANT")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_options
def delete(account: str, yes: bool, store_at: StoreAddress) -> None:
    """Delete TENANT for good: tokens stop, secrets are gone, usage is kept, the id stays taken."""
    confirm(
        f"Delete {account} for good? Its tokens stop at once and its secrets are gone; its usage "
        "is kept",
        yes=yes,
        is_final=True,
    )

    async def work(store: Store) -> None:
        await store.accounts.delete(account)

    use_store(store_at, work)
    click.echo(f"deleted {account}")


def _state(account: Account) -> str:
    if account.deleted_ms is not None:
        return "deleted"
    return "active" if account.suspended_ms is None else "suspended"


def _plan(account: Account) -> str:
    return f"{account.plan_id}, with exceptions" if account.overrides else account.plan_id


def _own(account: Account) -> set[tuple[str, ...]]:
    from tenantry_runtime.tenancy.terms import leaves

    return {path for path, _ in leaves(account.overrides)}


# Any: as JSON has it
def _document(account: Account) -> dict[str, Any]:
    return {
        "id": account.id,
        "name": account.name,
        "plan": account.plan_id,
        "state": _state(account),
        "created": iso(account.created_ms),
        "suspended": iso(account.suspended_ms),
        "deleted": iso(account.deleted_ms),
        "terms": account.terms,
        "exceptions": account.overrides,
    }


tenant.add_command(secret)
