"""What a deploy says, in wrangler's order, and the same for programs."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry_cli.workers.bundle import Bundle
from tenantry_cli.workers.config import Project
from tenantry_cli.workers.output import Screen

from .deploy import Deployed
from .metadata import Wishes, bindings
from .namespaces import Made
from .upload import Uploaded

MAX_SHOWN = 40
"""Characters of a variable."""

_RESOURCES = {
    "ai": "AI",
    "kv_namespace": "KV Namespace",
    "service": "Worker",
    "version_metadata": "Worker Version Metadata",
    "plain_text": "Environment Variable",
    "json": "Environment Variable",
    "secret_text": "Secret",
}


def show_bundle(bundle: Bundle, screen: Screen) -> None:
    """Show the files that go along with the main module, their sizes, and what they depend on."""
    written = [module for module in bundle.modules[1:] if not module.is_vendored]
    vendored = [module for module in bundle.modules if module.is_vendored]
    rows = [(module.name, module.type, kib(len(module.content))) for module in written]
    if vendored:
        rows.append(("Vendored Modules", "", kib(sum(len(each.content) for each in vendored))))
    if rows:
        others = bundle.modules[1:]
        total = sum(len(each.content) for each in others)
        modules = "module" if len(others) == 1 else "modules"
        screen.say("Attaching additional modules:")
        screen.boxed(
            ("Name", "Type", "Size"), [*rows, (f"Total ({len(others)} {modules})", "", kib(total))]
        )
    screen.say(f"Total Upload: {kib(bundle.num_bytes)} / gzip: {kib(bundle.num_gzip_bytes)}")
    if bundle.requirements.dependencies:
        screen.say(f"Dependencies: {', '.join(bundle.requirements.dependencies)}")
    for warning in bundle.requirements.warnings:
        screen.warn(warning)


def show_bindings(project: Project, wishes: Wishes, screen: Screen) -> None:
    """Show what the worker may call."""
    rows = [binding_row(each) for each in bindings(project, wishes)]
    rows += [(f"env.{name}", "Secret") for name in wishes.secrets]
    show_binding_rows(rows, screen)


def show_binding_rows(rows: list[tuple[str, str]], screen: Screen) -> None:
    """Show bindings, one a line."""
    if rows:
        screen.say("Your Worker has access to the following bindings:")
        screen.table(("Binding", "Resource"), rows)
        screen.say()


# Any: JSON
def binding_row(binding: dict[str, Any]) -> tuple[str, str]:
    """Return a binding as its line has it; secrets have no value."""
    match binding["type"]:
        case "plain_text":
            detail = _shortened(msgspec.json.encode(binding.get("text", "")).decode())
        case "json":
            detail = _shortened(msgspec.json.encode(binding.get("json")).decode())
        case "kv_namespace":
            detail = binding.get("namespace_id") or "made at the deploy"
        case "service":
            detail = binding.get("service", "")
            detail += f"#{binding['entrypoint']}" if binding.get("entrypoint") else ""
        case _:
            detail = ""
    name = f"env.{binding['name']}"
    resource = _RESOURCES.get(binding["type"], str(binding["type"]))
    return (f"{name} ({detail})" if detail else name), resource


def show_made(made: list[Made], screen: Screen) -> None:
    """Show namespaces that were made; one whose id is of another server is a surprise."""
    for each in made:
        if each.is_foreign:
            screen.warn(
                f"there was no KV namespace {each.title!r} here, so an empty one of that title is made "
                f"for env.{each.binding}: {each.id}"
            )
        else:
            screen.say(f"Made the KV namespace {each.title} for env.{each.binding}: {each.id}")


def show_startup(uploaded: Uploaded, screen: Screen) -> None:
    """Show how long importing the worker took."""
    if uploaded.startup_ms is not None:
        screen.say(f"Worker Startup Time: {uploaded.startup_ms:.0f} ms")


def show_deployed(project: Project, deployed: Deployed, screen: Screen) -> None:
    """Show where the worker is."""
    screen.done(f"Uploaded {project.name} ({deployed.uploaded.took_s:.2f} sec)")
    screen.done(f"Deployed {project.name} triggers ({deployed.triggers_took_s:.2f} sec)")
    for url in deployed.urls:
        screen.say(f"  {url}")
    for cron in deployed.crons:
        screen.say(f"  schedule: {cron}")
    if not deployed.urls and not deployed.crons:
        screen.say("  It has no URL: workers_dev is false, and there are no routes.")
    screen.say(f"Current Version ID: {deployed.uploaded.version_id}")


def bundle_document(project: Project, bundle: Bundle, wishes: Wishes) -> dict[str, Any]:
    """Describe an upload for programs; variables' values and secrets are left out."""
    return {
        "worker": project.name,
        "main_module": bundle.main_module,
        "modules": [
            {"name": each.name, "type": each.type, "bytes": len(each.content)}
            for each in bundle.modules
        ],
        "upload_bytes": bundle.num_bytes,
        "gzip_bytes": bundle.num_gzip_bytes,
        "dependencies": list(bundle.requirements.dependencies),
        "bindings": [
            {"name": each["name"], "type": each["type"]}
            for each in (
                *bindings(project, wishes),
                *({"name": name, "type": "secret_text"} for name in wishes.secrets),
            )
        ],
    }


def uploaded_document(uploaded: Uploaded) -> dict[str, Any]:
    """Describe a version that was uploaded, for programs."""
    return {"version_id": uploaded.version_id, "startup_ms": uploaded.startup_ms}


def kib(num_bytes: int) -> str:
    """Return a size as wrangler shows it."""
    return f"{num_bytes / 1024:.2f} KiB"


def _shortened(value: str) -> str:
    return value if len(value) <= MAX_SHOWN else f"{value[: MAX_SHOWN - 3]}..."
