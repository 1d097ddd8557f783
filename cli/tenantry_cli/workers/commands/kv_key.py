"""`workerctl kv key`."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import click

from tenantry_cli.workers.options import (
    Chosen,
    config_options,
    connect,
    json_option,
    listing_options,
    yes_option,
)
from tenantry_cli.workers.output import Screen

from .kv_namespace import NAMESPACES, chosen_id

T = TypeVar("T")


def namespace_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--binding`, `--namespace-id`, and what the configuration is found with."""
    command = click.option("--namespace-id", metavar="ID", help="The namespace.")(command)
    command = click.option("--binding", help="What the configuration calls it.")(command)
    # wrangler's users say it: here a namespace is never anywhere else
    command = click.option("--remote", is_flag=True, hidden=True, expose_value=False)(command)
    return config_options(command)


@click.group()
def key() -> None:
    """Put, get, list and delete keys."""


@key.command()
@click.argument("name", metavar="KEY")
@click.argument("value", required=False, metavar="[VALUE]")
@click.option(
    "--path",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Read the value from this file.",
)
@click.option("--ttl", type=click.IntRange(min=60), help="Seconds until it is gone.")
@click.option("--expiration", type=click.IntRange(min=1), help="When it is gone: Unix seconds.")
@click.option("--metadata", metavar="JSON", help="Kept beside it, at most 1,024 bytes.")
@namespace_options
@json_option
def put(
    name: str,
    value: str | None,
    path: Path | None,
    ttl: int | None,
    expiration: int | None,
    metadata: str | None,
    binding: str | None,
    namespace_id: str | None,
    chosen: Chosen,
    screen: Screen,
) -> None:
    """Write KEY: VALUE, a file, or standard input as it is."""
    content = _content(value, path)
    timing = {"expiration": expiration, "expiration_ttl": ttl}
    params = {option: str(number) for option, number in timing.items() if number is not None}
    parts: dict[str, Any] = {"content": content}
    if metadata is not None:
        checked = _json(metadata, "--metadata")
        parts = {"files": {"value": ("value", content), "metadata": (None, checked)}}
    with connect() as plane:
        found = chosen_id(plane, namespace_id, binding, chosen)
        plane.order("PUT", _value_path(found, name), params=params, **parts)
    screen.done(f"Wrote {len(content)} bytes to {name}")
    screen.result({"namespace_id": found, "key": name, "bytes": len(content)})


@key.command()
@click.argument("name", metavar="KEY")
@click.option("--text", is_flag=True, help="Decode the value, and end the line.")
@namespace_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the value, or base64 of it.")
def get(
    name: str,
    text: bool,
    as_json: bool,
    binding: str | None,
    namespace_id: str | None,
    chosen: Chosen,
) -> None:
    """Write the value of KEY to standard output, byte for byte."""
    from tenantry_cli.workers.api import Refused

    with connect() as plane:
        found = chosen_id(plane, namespace_id, binding, chosen)
        try:
            value = plane.raw(plane.request("GET", _value_path(found, name))).content
        except Refused as refusal:
            if refusal.is_missing:
                raise click.ClickException(f"there is no key {name!r} in {found}") from refusal
            raise
    if as_json:
        Screen(as_json=True).result({"namespace_id": found, "key": name, **_document(value)})
    elif text or sys.stdout.isatty():
        from tenantry_cli.printable import printable

        shown = value.decode(errors="replace")
        shown = printable(shown) if sys.stdout.isatty() else shown
        click.echo(shown, nl=not shown.endswith("\n"))
    else:
        sys.stdout.buffer.write(value)


@key.command("list")
@click.option("--prefix", default="", help="Only keys that begin so.")
@namespace_options
@listing_options
def list_command(
    prefix: str, binding: str | None, namespace_id: str | None, chosen: Chosen, screen: Screen
) -> None:
    """List all keys."""
    from msgspec.json import encode

    keys: list[dict[str, Any]] = []
    params = {"limit": "1000", **({"prefix": prefix} if prefix else {})}
    with connect() as plane:
        found = chosen_id(plane, namespace_id, binding, chosen)
        path = f"{NAMESPACES}/{quote(found, safe='')}/keys"
        cursor: str | None = ""
        while cursor is not None:
            page = plane.page(
                path,
                list[dict[str, Any]],
                params={**params, **({"cursor": cursor} if cursor else {})},
            )
            keys += page.result
            cursor = page.cursor
    rows = [
        (
            each["name"],
            str(each.get("expiration", "-")),
            encode(each["metadata"]).decode() if each.get("metadata") else "-",
        )
        for each in keys
    ]
    screen.table(("KEY", "EXPIRES", "METADATA"), rows)
    screen.result(keys)


@key.command()
@click.argument("name", metavar="KEY")
@yes_option
@namespace_options
@json_option
def delete(
    name: str,
    yes: bool,
    binding: str | None,
    namespace_id: str | None,
    chosen: Chosen,
    screen: Screen,
) -> None:
    """Delete KEY. It is no error if it is not there."""
    from tenantry_cli.confirm import confirm

    with connect() as plane:
        found = chosen_id(plane, namespace_id, binding, chosen)
        confirm(f"Delete {name} of {found}?", yes=yes)
        plane.order("DELETE", _value_path(found, name))
    screen.done(f"Deleted {name}")
    screen.result({"namespace_id": found, "key": name, "deleted": True})


def _value_path(namespace_id: str, name: str) -> str:
    return f"{NAMESPACES}/{quote(namespace_id, safe='')}/values/{quote(name, safe='')}"


def _content(value: str | None, path: Path | None) -> bytes:
    if value is not None and path is not None:
        raise click.UsageError("say either VALUE or --path")
    if path is not None:
        return path.read_bytes()
    if value is not None:
        return value.encode()
    if sys.stdin.isatty():
        raise click.UsageError("say VALUE or --path, or pipe the value")
    return sys.stdin.buffer.read()


def _json(text: str, option: str) -> bytes:
    import msgspec

    try:
        return msgspec.json.encode(msgspec.json.decode(text))
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{option}: it is not JSON: {error}") from error


def _document(value: bytes) -> dict[str, Any]:
    try:
        return {"value": value.decode(), "base64": False}
    except UnicodeDecodeError:
        return {"value": b64encode(value).decode(), "base64": True}
