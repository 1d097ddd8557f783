"""`workerctl kv bulk`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any, TypeVar
from urllib.parse import quote

import click
import msgspec

from tenantry_cli.workers.options import Chosen, connect, json_option, yes_option
from tenantry_cli.workers.output import Screen

from .kv_key import namespace_options
from .kv_namespace import NAMESPACES, chosen_id

PUT_AT_ONCE = 1000
GET_AT_ONCE = 100

T = TypeVar("T")


class Pair(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A key and its value, as files have it."""

    key: str
    value: str
    expiration: int | None = None
    """Unix seconds."""
    expiration_ttl: int | None = None
    """Seconds."""
    # Any: JSON of the user's
    metadata: Any = None
    base64: bool = False
    """Whether `value` is base64 of the bytes."""


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """A key, as `kv key list` prints it."""

    name: str


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """Values by keys; null: there is none."""

    values: dict[str, Any] = {}


@click.group()
def bulk() -> None:
    """Put, get and delete many keys: files of JSON."""


@bulk.command()
@click.argument("file", type=click.File("rb"))
@namespace_options
@json_option
def put(
    file: IO[bytes], binding: str | None, namespace_id: str | None, chosen: Chosen, screen: Screen
) -> None:
    """Write all pairs of FILE: [{"key": …, "value": …, "expiration_ttl": …, "metadata": …}, …]."""
    pairs = _decode(file, list[Pair])
    with connect() as plane:
        found = chosen_id(plane, namespace_id, binding, chosen)
        path = f"{NAMESPACES}/{quote(found, safe='')}/bulk"
        for some in _in_parts(pairs, PUT_AT_ONCE):
            plane.send("PUT", path, msgspec.Raw, json=some)
    screen.done(f"Wrote {len(pairs)} keys")
    screen.result({"namespace_id": found, "written": len(pairs)})


@bulk.command()
@click.argument("file", type=click.File("rb"))
@namespace_options
@click.option("--json", "as_json", is_flag=True, help="It always prints JSON.")
def get(
    file: IO[bytes], binding: str | None, namespace_id: str | None, as_json: bool, chosen: Chosen
) -> None:
    """Print the values of the keys of FILE as JSON: ["key", …] or what `kv key list` prints."""
    names = _names(file)
    values: dict[str, Any] = {}
    with connect() as plane:
        found = chosen_id(plane, namespace_id, binding, chosen)
        path = f"{NAMESPACES}/{quote(found, safe='')}/bulk/get"
        for some in _in_parts(names, GET_AT_ONCE):
            values |= plane.send("POST", path, Values, json={"keys": some}).values
    Screen(as_json=True).result(values)


@bulk.command()
@click.argument("file", type=click.File("rb"))
@yes_option
@namespace_options
@json_option
def delete(
    file: IO[bytes],
    yes: bool,
    binding: str | None,
    namespace_id: str | None,
    chosen: Chosen,
    screen: Screen,
) -> None:
    """Delete the keys of FILE: ["key", …] or what `kv key list` prints."""
    from tenantry_cli.workers.output.screen import confirm

    names = _names(file)
    confirm(f"Delete {len(names)} keys?", yes=yes)
    with connect() as plane:
        found = chosen_id(plane, namespace_id, binding, chosen)
        path = f"{NAMESPACES}/{quote(found, safe='')}/bulk/delete"
        for some in _in_parts(names, PUT_AT_ONCE):
            plane.send("POST", path, msgspec.Raw, json=some)
    screen.done(f"Deleted {len(names)} keys")
    screen.result({"namespace_id": found, "deleted": len(names)})


def _names(file: IO[bytes]) -> list[str]:
    names = _decode(file, list[str | Name])
    return [each if isinstance(each, str) else each.name for each in names]


def _decode(file: IO[bytes], type: type[T]) -> T:
    try:
        return msgspec.json.decode(file.read(), type=type)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{file.name}: {error}") from error


def _in_parts(values: list[T], size: int) -> list[Sequence[T]]:
    return [values[start : start + size] for start in range(0, len(values), size)]
