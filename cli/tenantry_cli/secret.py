"""`workerctl tenant secret`: what tenants' workers must know and nobody else may read."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING

import click

from .installed import require_packages, runtime_imports
from .json_output import print_json
from .operator import StoreAddress, store_options, use_store
from .piped import piped_value
from .tables import columns

if TYPE_CHECKING:
    # a base install lacks what they import
    from tenantry_runtime.tenancy import Store
    from tenantry_runtime.tenancy.secret_keys import KeySource
    from tenantry_runtime.tenancy.secrets import Rotation

CIPHER_PACKAGES = ("cryptography",)


@click.group()
def secret() -> None:
    """Keep secrets of tenants, encrypted in the store, and the key of all secrets.

    A worker's own are its tenant's to keep, with `workerctl secret`.

    The keys that encrypt them are in secrets.key in the state directory, which is made at the first
    use; machines that share a store need the same file. Or they are in TENANTRY_SECRETS_KEY, or in
    the file that TENANTRY_SECRETS_KEY_FILE names: 32 bytes each, in base64 or hexadecimal.
    """


@secret.command()
@click.argument("tenant")
@click.argument("name")
@store_options
def put(tenant: str, name: str, store_at: StoreAddress) -> None:
    """Keep the secret NAME of TENANT: asked for, or read from a pipe without its last line end.

    \b
    workerctl tenant secret put acme API_KEY < api-key.txt
    """
    _imports()
    from tenantry_runtime.core import TenantId
    from tenantry_runtime.tenancy.secrets import Plaintext, Secrets

    value = Plaintext(_value())
    keys = _keys(store_at)

    async def work(store: Store) -> None:
        await Secrets(store.database, keys).put(TenantId(tenant), name, value)

    use_store(store_at, work)
    click.echo(f"kept {name} of {tenant}")


@secret.command("list")
@click.argument("tenant")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@store_options
def list_command(tenant: str, as_json: bool, store_at: StoreAddress) -> None:
    """List names of TENANT's secrets, and when each was put. Values are never shown."""
    _imports()
    from tenantry_runtime.core import TenantId
    from tenantry_runtime.tenancy.secrets import SecretListing, Secrets

    keys = _keys(store_at)

    async def work(store: Store) -> list[SecretListing]:
        return await Secrets(store.database, keys).list(TenantId(tenant))

    rows = [(each.name, _date(each.updated_ms)) for each in use_store(store_at, work)]
    if as_json:
        print_json([{"name": name, "updated": date} for name, date in rows])
    else:
        click.echo(columns([("NAME", "UPDATED"), *rows], right_aligned=set()))


@secret.command()
@click.argument("tenant")
@click.argument("name")
@store_options
def delete(tenant: str, name: str, store_at: StoreAddress) -> None:
    """Forget the secret NAME of TENANT. No key is needed for it."""
    _imports()
    from tenantry_runtime.core import TenantId
    from tenantry_runtime.tenancy.secrets import Secrets

    keys = _keys(store_at)

    async def work(store: Store) -> bool:
        return await Secrets(store.database, keys).delete(TenantId(tenant), name)

    if not use_store(store_at, work):
        raise click.ClickException(f"{tenant} has no secret {name}")
    click.echo(f"deleted {name} of {tenant}")


@secret.command("rotate-key")
@click.option(
    "--prepare",
    is_flag=True,
    help="Only make the next key, for the other machines to have before it is used.",
)
@click.option("--alone", is_flag=True, help="No other machine uses this PostgreSQL store.")
@store_options
def rotate_key(prepare: bool, alone: bool, store_at: StoreAddress) -> None:
    """Make a new key, encrypt all secrets anew with it, and forget the old one.

    It may be interrupted, and goes on when it is run again. Where several machines share the store,
    a key that is new to them would keep them from their secrets, so there it takes these steps:

    \b
    1. workerctl tenant secret rotate-key --prepare     on one machine
    2. copy its secrets.key to the others
    3. workerctl tenant secret rotate-key               on the first machine
    4. copy its secrets.key to the others again

    Keys in TENANTRY_SECRETS_KEY or TENANTRY_SECRETS_KEY_FILE are yours to replace: put the new one
    last on all machines, then first; then run this; then take the old one away.
    """
    _imports()
    from tenantry_runtime.tenancy.secrets import Secrets

    keys = _keys(store_at)
    if prepare:
        _prepare(keys)
        return
    if keys.is_managed:
        _refuse_to_surprise_others(keys, store_at, alone)

    async def work(store: Store) -> Rotation:
        if keys.is_managed:
            keys.advance()
        rotation = await Secrets(store.database, keys).rotate()
        if keys.is_managed and rotation.unused_key_ids:
            keys.retire(rotation.unused_key_ids)
        return rotation

    _report(use_store(store_at, work), keys, is_shared=store_at.url is not None and not alone)


def _prepare(keys: KeySource) -> None:
    if not keys.is_managed:
        raise click.UsageError(
            f"the keys are in {keys.name}: put the next one last there, on all machines"
        )
    with _one_line():
        following = keys.prepare().following
    assert following is not None
    click.echo(f"made the next key, {following.id}")
    click.echo(
        f"copy {keys.name} to the other machines, then run: workerctl tenant secret rotate-key"
    )


def _refuse_to_surprise_others(keys: KeySource, store_at: StoreAddress, alone: bool) -> None:
    """Stop where a key would be made of which other machines know nothing."""
    if store_at.url is None or alone:
        return
    with _one_line():
        ring = keys.load()
    if ring is None or (ring.following is None and len(ring.keys) == 1):
        raise click.ClickException(
            "machines that share this store could not open their secrets any more: run `workerctl "
            "tenant secret rotate-key --prepare` first and copy secrets.key to them, or say --alone if there "
            "are none"
        )


def _report(rotation: Rotation, keys: KeySource, *, is_shared: bool) -> None:
    click.echo(f"encrypted {rotation.num_encrypted} secrets anew, with key {rotation.key_id}")
    if rotation.unused_key_ids:
        named = ", ".join(rotation.unused_key_ids)
        if keys.is_managed:
            click.echo(f"forgot {named}: nothing is encrypted with it any more")
        else:
            click.echo(f"{named} may be taken out of {keys.name} on all machines")
    if is_shared and keys.is_managed:
        click.echo(f"copy {keys.name} to the other machines again")
    for damaged in rotation.left:
        click.echo(damaged.problem, err=True)
    if rotation.left:
        raise click.ClickException(
            f"{len(rotation.left)} secrets do not open; their keys are kept where they were"
        )


def _value() -> str:
    """Return what is on standard input: an argument would be seen by every user of the machine."""
    if sys.stdin.isatty():
        value: str = click.prompt("Value", hide_input=True, confirmation_prompt=True)
        return value
    return piped_value()


def _keys(store_at: StoreAddress) -> KeySource:
    from tenantry_runtime.tenancy.secret_keys import KeySource

    with _one_line():
        return KeySource(store_at.state_dir)


@contextmanager
def _one_line() -> Generator[None, None, None]:
    """End the command in one line where the runtime refuses something."""
    from tenantry_runtime.errors import TenantryError

    try:
        yield
    except TenantryError as error:
        raise click.ClickException(" ".join(str(error).split())) from error


def _date(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="seconds")


def _imports() -> None:
    require_packages(CIPHER_PACKAGES)
    with runtime_imports():
        import_module("tenantry_runtime.tenancy.secrets")
