"""`workerctl token`: by which tenants call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from .json_output import print_json
from .moments import Duration, iso, shown
from .operator import StoreAddress, store_options, use_store
from .tables import columns

if TYPE_CHECKING:
    # a base install lacks what it imports
    from tenantry_runtime.tenancy import NewToken, Store, Token

SCOPES = ("run", "deploy", "admin")

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def token() -> None:
    """Keep tokens, which are shown once: the store has no more than their digests."""


@token.command()
@click.argument("account", metavar="TENANT")
@click.option("--name", default="workerctl", show_default=True, help="What it is for.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    default=("run",),
    show_default=True,
    help="run: call models; deploy: manage workers; admin: all. Repeat it for more.",
)
@click.option(
    "--expires", "lifetime_ms", type=Duration(), metavar="TIME", help="In 12h or 90d; else never."
)
@_json
@store_options
def create(
    account: str,
    name: str,
    scopes: tuple[str, ...],
    lifetime_ms: int | None,
    as_json: bool,
    store_at: StoreAddress,
) -> None:
    """Create a token of TENANT. It alone goes to standard output.

    \b
    workerctl token create acme --name ci --scope run --scope deploy --expires 90d
    """
    expires_ms = None if lifetime_ms is None else time.time_ns() // 1_000_000 + lifetime_ms

    async def work(store: Store) -> tuple[NewToken, Token]:
        made = await store.tokens.create(account, name=name, scopes=scopes, expires_ms=expires_ms)
        return made, await store.tokens.get(made.id)

    _reveal(*use_store(store_at, work), as_json=as_json)


@token.command("list")
@click.argument("account", metavar="[TENANT]", required=False)
@_json
@store_options
def list_command(account: str | None, as_json: bool, store_at: StoreAddress) -> None:
    """List tokens that are not revoked, of TENANT or of all. Last use is to the minute."""

    async def work(store: Store) -> list[Token]:
        if account is not None:
            # one that is not there is said, rather than shown as empty
            await store.accounts.get(account)
        return await store.tokens.list(account)

    tokens = use_store(store_at, work)
    if as_json:
        print_json([_document(each) for each in tokens])
        return
    now_ms = time.time_ns() // 1_000_000
    header = ("TOKEN", "TENANT", "NAME", "SCOPES", "CREATED", "EXPIRES", "LAST USED")
    rows = [
        (
            each.id,
            each.account_id,
            each.name,
            ", ".join(each.scopes),
            shown(each.created_ms),
            shown(each.expires_ms, otherwise="never") if each.is_valid(now_ms) else "expired",
            shown(each.last_used_ms, otherwise="never"),
        )
        for each in tokens
    ]
    click.echo(columns([header, *rows], right_aligned=set()))


@token.command()
@click.argument("token_id", metavar="TOKEN")
@click.option(
    "--grace",
    "grace_ms",
    type=Duration(),
    default="24h",
    show_default=True,
    metavar="TIME",
    help="How long the old one is good beside it; 0: it stops at once.",
)
@_json
@store_options
def rotate(token_id: str, grace_ms: int, as_json: bool, store_at: StoreAddress) -> None:
    """Make a successor of TOKEN, an id from `workerctl token list`."""

    async def work(store: Store) -> tuple[NewToken, Token]:
        made = await store.tokens.rotate(token_id, grace_ms=grace_ms)
        return made, await store.tokens.get(made.id)

    _reveal(*use_store(store_at, work), as_json=as_json)


@token.command()
@click.argument("token_id", metavar="TOKEN")
@store_options
def revoke(token_id: str, store_at: StoreAddress) -> None:
    """Revoke TOKEN, an id from `workerctl token list`, for good and at once."""

    async def work(store: Store) -> bool:
        return await store.tokens.revoke(token_id)

    if not use_store(store_at, work):
        raise click.ClickException(
            f"there is no token {token_id!r} to revoke; `workerctl token list` lists them"
        )
    click.echo(f"revoked {token_id}")


def _reveal(made: NewToken, known: Token, *, as_json: bool) -> None:
    if as_json:
        print_json({**_document(known), "token": made.secret})
        return
    ends = (
        "it does not expire" if known.expires_ms is None else f"until {shown(known.expires_ms)} UTC"
    )
    click.echo(f"{known.id} of {known.account_id}, for {', '.join(known.scopes)}; {ends}", err=True)
    click.echo("This is the only time that it is shown:", err=True)
    click.echo(made.secret)


def _document(known: Token) -> dict[str, object]:
    return {
        "id": known.id,
        "tenant": known.account_id,
        "name": known.name,
        "scopes": list(known.scopes),
        "created": iso(known.created_ms),
        "expires": iso(known.expires_ms),
        "last_used": iso(known.last_used_ms),
    }
