"""`workerctl kv bulk`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any, TypeVar
from urllib.parse import quote

import click

from tenantry_cli.workers.options import Chosen, connect, json_option, yes_option
from tenantry_cli.workers.output import Screen

from .kv_key import namespace_options
from .kv_namespace import NAMESPACES, chosen_id

PUT_AT_ONCE = 1000
GET_AT_ONCE = 100

T = TypeVar("T")


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
    from tenantry_cli.workers.api.records import Pair

    pairs = _decode(file, list[Pair])
    with connect() as plane:
        found = chosen_id(plane, namespace_id, binding, chosen)
        path = f"{NAMESPACES}/{quote(found, safe='')}/bulk"
        for some in _in_parts(pairs, PUT_AT_ONCE):
            plane.order("PUT", path, json=some)
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
    from tenantry_cli.workers.api.records import Values

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
    from tenantry_cli.confirm import confirm

    names = _names(file)
    confirm(f"Delete {len(names)} keys?", yes=yes)
    with connect() as plane:
        found = chosen_id(plane, namespace_id, binding, chosen)
        path = f"{NAMESPACES}/{quote(found, safe='')}/bulk/delete"
        for some in _in_parts(names, PUT_AT_ONCE):
            plane.order("POST", path, json=some)
    screen.done(f"Deleted {len(names)} keys")
    screen.result({"namespace_id": found, "deleted": len(names)})


def _names(file: IO[bytes]) -> list[str]:
    from tenantry_cli.workers.api.records import KeyName

    names = _decode(file, list[str | KeyName])
    return [each if isinstance(each, str) else each.name for each in names]


def _decode(file: IO[bytes], type: type[T]) -> T:
    import msgspec

    try:
        return msgspec.json.decode(file.read(), type=type)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{file.name}: {error}") from error


def _in_parts(values: list[T], size: int) -> list[Sequence[T]]:
    return [values[start : start + size] for start in range(0, len(values), size)]
