"""`workerctl kv namespace`."""

from __future__ import annotations

from typing import TYPE_CHECKING
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

if TYPE_CHECKING:
    from tenantry_cli.workers.api import ControlPlane

NAMESPACES = "/storage/kv/namespaces"


@click.group()
def namespace() -> None:
    """Make, list, rename and delete namespaces."""


@namespace.command()
@click.argument("title", metavar="NAME")
@click.option("--binding", help="What the worker calls it; default: from NAME.")
@json_option
def create(title: str, binding: str | None, screen: Screen) -> None:
    """Make the namespace NAME, and show how a worker is given it."""
    from msgspec.json import encode, format

    from tenantry_cli.workers.publish.namespaces import Namespace

    with connect() as plane:
        made = plane.send("POST", NAMESPACES, Namespace, json={"title": title})
    screen.done(f"Made the namespace {made.title}")
    screen.say("To give it to your worker, add to wrangler.jsonc:")
    entry = {"kv_namespaces": [{"binding": binding or _binding(title), "id": made.id}]}
    screen.say(format(encode(entry)).decode())
    screen.result(made)


@namespace.command("list")
@listing_options
def list_command(screen: Screen) -> None:
    """List the account's namespaces."""
    from tenantry_cli.workers.api.control_plane import pages
    from tenantry_cli.workers.publish.namespaces import Namespace

    with connect() as plane:
        found = list(pages(plane, NAMESPACES, list[Namespace]))
    if found:
        screen.table(("ID", "TITLE"), [(each.id, each.title) for each in found])
    else:
        screen.say("there is no namespace; `workerctl kv namespace create NAME` makes one")
    screen.result(found)


@namespace.command()
@click.argument("old_name", metavar="[OLD]", required=False)
@click.option("--namespace-id", help="The namespace, instead of OLD.")
@click.option("--new-name", required=True, help="What it is called from now on.")
@json_option
def rename(old_name: str | None, namespace_id: str | None, new_name: str, screen: Screen) -> None:
    """Rename the namespace OLD."""
    if (old_name is None) == (namespace_id is None):
        raise click.UsageError("say either OLD or --namespace-id")
    with connect() as plane:
        found = namespace_id or id_of(plane, str(old_name))
        path = f"{NAMESPACES}/{quote(found, safe='')}"
        plane.order("PUT", path, json={"title": new_name})
    screen.done(f"Renamed the namespace {found} to {new_name}")
    screen.result({"id": found, "title": new_name})


@namespace.command()
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--namespace-id", help="The namespace.")
@click.option("--binding", help="What the configuration calls it.")
@yes_option
@config_options
@json_option
def delete(
    name: str | None,
    namespace_id: str | None,
    binding: str | None,
    yes: bool,
    chosen: Chosen,
    screen: Screen,
) -> None:
    """Delete a namespace with all its keys."""
    from tenantry_cli.confirm import confirm

    with connect() as plane:
        if name is not None:
            if namespace_id is not None or binding is not None:
                raise click.UsageError("say NAME, --namespace-id or --binding, not two of them")
            found = id_of(plane, name)
        else:
            found = chosen_id(plane, namespace_id, binding, chosen)
        confirm(f"Delete the namespace {found} with all its keys?", yes=yes, is_final=True)
        plane.order("DELETE", f"{NAMESPACES}/{quote(found, safe='')}")
    screen.done(f"Deleted the namespace {found}")
    screen.result({"id": found, "deleted": True})


def chosen_id(
    plane: ControlPlane, namespace_id: str | None, binding: str | None, chosen: Chosen
) -> str:
    """Return the id that options mean: of `--namespace-id`, or of `--binding` in the configuration."""
    if (namespace_id is None) == (binding is None):
        raise click.UsageError("which namespace? say --binding or --namespace-id")
    if namespace_id is not None:
        return namespace_id
    project = chosen.project_or_none()
    if project is None:
        raise click.UsageError("--binding is of a configuration, and there is none here")
    bound = {each["name"]: each for each in project.bindings if each["type"] == "kv_namespace"}
    if binding not in bound:
        there = ", ".join(bound) or "none"
        raise click.UsageError(f"{project.source} has no KV binding {binding!r}; it has: {there}")
    from tenantry_cli.workers.publish.namespaces import namespaces_of, title_of

    said = str(bound[binding].get("namespace_id") or title_of(project.name, str(binding)))
    found = namespaces_of(plane).find(said)
    if found is None:
        raise click.ClickException(
            f"env.{binding} has no namespace yet; `workerctl deploy` makes it, and so does "
            f"`workerctl kv namespace create {said}`"
        )
    return found


def id_of(plane: ControlPlane, title: str) -> str:
    """Return the id of the namespace of a title."""
    from tenantry_cli.workers.publish.namespaces import namespaces_of

    found = namespaces_of(plane).by_title.get(title)
    if found is None:
        raise click.ClickException(
            f"there is no namespace {title!r}; `workerctl kv namespace list` lists them"
        )
    return found.id


def _binding(title: str) -> str:
    binding = "".join(each if each.isascii() and each.isalnum() else "_" for each in title)
    return f"_{binding}" if binding[:1].isdigit() else binding
