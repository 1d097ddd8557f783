"""`workerctl secret`: of workers. Tenants' own are an operator's: `workerctl tenant secret`."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO
from urllib.parse import quote

import click

from tenantry_cli.piped import piped_value
from tenantry_cli.workers.options import (
    Chosen,
    connect,
    json_option,
    listing_options,
    worker_options,
    yes_option,
)
from tenantry_cli.workers.output import Screen

MAX_BULK = 100


@click.group()
def secret() -> None:
    """Keep secrets of a worker, which it reads as env.KEY. A change is deployed at once.

    Operators keep tenants' own secrets, and the key that encrypts all, with `workerctl tenant secret`.
    """


@secret.command()
@click.argument("key")
@worker_options
@json_option
def put(key: str, chosen: Chosen, screen: Screen) -> None:
    """Keep the secret KEY: asked for, or read from a pipe without its last line end.

    \b
    workerctl secret put API_KEY < api-key.txt
    """
    worker = chosen.worker()
    _check_key(key)
    value = read_value(f"Value of {key}")
    with connect() as plane, _of_worker(worker):
        document = {"name": key, "text": value, "type": "secret_text"}
        plane.order("PUT", _path(worker, "/secrets"), json=document)
    screen.done(f"Uploaded secret {key} of {worker}")
    screen.result({"worker": worker, "name": key})


@secret.command("list")
@worker_options
@listing_options
def list_command(chosen: Chosen, screen: Screen) -> None:
    """List names of a worker's secrets. Values are never shown."""
    from tenantry_cli.workers.api.records import SecretName

    worker = chosen.worker()
    with connect() as plane, _of_worker(worker):
        secrets = plane.get(_path(worker, "/secrets"), list[SecretName])
    if secrets:
        screen.table(("NAME", "TYPE"), [(each.name, each.type) for each in secrets])
    else:
        screen.say(f"{worker} has no secrets; `workerctl secret put NAME` keeps one")
    screen.result(secrets)


@secret.command()
@click.argument("key")
@yes_option
@worker_options
@json_option
def delete(key: str, yes: bool, chosen: Chosen, screen: Screen) -> None:
    """Forget the secret KEY."""
    from tenantry_cli.confirm import confirm

    worker = chosen.worker()
    confirm(f"Delete the secret {key} of {worker}?", yes=yes)
    with connect() as plane, _of_worker(worker):
        path = _path(worker, f"/secrets/{quote(key, safe='')}")
        plane.order("DELETE", path, params={"url_encoded": "true"})
    screen.done(f"Deleted secret {key} of {worker}")
    screen.result({"worker": worker, "name": key})


@secret.command()
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@worker_options
@json_option
def bulk(file: IO[str], chosen: Chosen, screen: Screen) -> None:
    """Keep all secrets of FILE, or of standard input: at most 100, in one step.

    FILE is JSON, where null deletes a secret, or NAME=value lines.
    """
    from tenantry_cli.workers.secrets_file import parse_secrets

    worker = chosen.worker()
    try:
        text = file.read()
    except UnicodeDecodeError:
        # from None: the error has the text in it
        raise click.ClickException(f"{file.name} is not UTF-8 text") from None
    secrets = parse_secrets(text, file.name)
    if not secrets:
        raise click.UsageError(f"{file.name} has no secrets")
    if len(secrets) > MAX_BULK:
        raise click.UsageError(f"{file.name} has {len(secrets)} secrets; {MAX_BULK} at most")
    for name in secrets:
        _check_key(name)
    document = {
        name: None if text is None else {"name": name, "text": text, "type": "secret_text"}
        for name, text in secrets.items()
    }
    with connect() as plane, _of_worker(worker):
        path = _path(worker, "/secrets-bulk")
        plane.order("PATCH", path, json={"secrets": document})
    kept = [name for name, text in secrets.items() if text is not None]
    deleted = [name for name, text in secrets.items() if text is None]
    for name in kept:
        screen.done(f"Uploaded secret {name} of {worker}")
    for name in deleted:
        screen.done(f"Deleted secret {name} of {worker}")
    screen.result({"worker": worker, "put": kept, "deleted": deleted})


def read_value(question: str) -> str:
    """Return what is asked for, or on standard input: an argument would be seen by every user."""
    if sys.stdin.isatty():
        value: str = click.prompt(question, hide_input=True, err=True)
        return value
    value = piped_value()
    if not value:
        raise click.UsageError("standard input is empty: pipe the value, or type it in a terminal")
    return value


def _check_key(key: str) -> None:
    if not key.isidentifier() or not key.isascii():
        raise click.UsageError(f"{key!r} cannot be read as env.NAME: use letters, digits and _")


def _path(worker: str, below: str) -> str:
    return f"/workers/scripts/{quote(worker, safe='')}{below}"


@contextmanager
def _of_worker(worker: str) -> Generator[None, None, None]:
    """Say in plain words that a worker is not there."""
    from tenantry_cli.workers.api import Refused
    from tenantry_cli.workers.history import NO_WORKER, explained

    try:
        yield
    except Refused as refusal:
        if refusal.has_code(NO_WORKER):
            raise click.ClickException(
                f"there is no worker {worker!r} in this account; `workerctl deploy --secrets-file FILE` "
                "makes it with its secrets"
            ) from refusal
        raise explained(refusal, worker) from refusal
