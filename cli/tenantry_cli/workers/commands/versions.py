"""`workerctl versions`."""

from __future__ import annotations

import click

from tenantry_cli.workers.commands.uploading import (
    Asked,
    prepare,
    upload_options,
    warn_of_account,
)
from tenantry_cli.workers.options import (
    Chosen,
    connect,
    json_option,
    worker_options,
    yes_option,
)
from tenantry_cli.workers.output import Screen


@click.group()
def versions() -> None:
    """Upload versions of a worker, look at them, and split traffic among them."""


@versions.command("list")
@worker_options
@json_option
def list_command(chosen: Chosen, screen: Screen) -> None:
    """List the 10 newest versions."""
    from tenantry_cli.workers.history import SHOWN, show_version, version_document, versions_of

    worker = chosen.worker()
    with connect() as plane:
        found = versions_of(plane, worker)[:SHOWN]
    for version in reversed(found):
        show_version(version, screen)
        screen.say()
    screen.result([version_document(version) for version in found])


@versions.command()
@click.argument("version_id", metavar="VERSION")
@worker_options
@json_option
def view(version_id: str, chosen: Chosen, screen: Screen) -> None:
    """Show VERSION, an id from `versions list`: what it runs, and what it may call."""
    from tenantry_cli.workers.history import show_version, version_document, version_of
    from tenantry_cli.workers.publish.report import binding_row, show_binding_rows

    worker = chosen.worker()
    with connect() as plane:
        version = version_of(plane, worker, version_id)
    resources = version.resources
    runtime = resources.script_runtime
    show_version(version, screen)
    screen.say("-" * 60, dim=True)
    screen.say(f"Handlers:            {', '.join(resources.script.handlers or []) or '-'}")
    screen.say(f"Compatibility Date:  {runtime.compatibility_date or '-'}")
    if runtime.compatibility_flags:
        screen.say(f"Compatibility Flags: {', '.join(runtime.compatibility_flags)}")
    screen.say()
    show_binding_rows([binding_row(each) for each in resources.bindings], screen)
    screen.result(
        {
            **version_document(version),
            "handlers": resources.script.handlers or [],
            "compatibility_date": runtime.compatibility_date,
            "compatibility_flags": runtime.compatibility_flags,
            "bindings": [
                {"name": each["name"], "type": each["type"]} for each in resources.bindings
            ],
        }
    )


@versions.command()
@upload_options
def upload(chosen: Chosen, screen: Screen, asked: Asked) -> None:
    """Upload this folder's worker as a version that gets no traffic yet."""
    from tenantry_cli.workers.publish import report, upload_version, with_namespaces
    from tenantry_cli.workers.publish.upload import exists

    prepared = prepare(asked, asked.project(chosen, screen), screen)
    if prepared is None:
        return
    project, wishes = prepared.project, prepared.wishes
    with connect() as plane:
        warn_of_account(project, plane.account.account_id, screen)
        if not exists(plane, project.name):
            raise click.ClickException(
                f"there is no worker {project.name!r} yet; its first version comes with "
                "`workerctl deploy`"
            )
        project, made = with_namespaces(plane, project)
        report.show_made(made, screen)
        uploaded = upload_version(plane, project, prepared.bundle, wishes, screen, is_first=False)
    report.show_startup(uploaded, screen)
    report.show_bindings(project, wishes, screen)
    screen.done(f"Uploaded {project.name} ({uploaded.took_s:.2f} sec)")
    screen.say(f"Worker Version ID: {uploaded.version_id}")
    screen.say()
    screen.say("To give it all traffic:")
    screen.say(f"  workerctl versions deploy {uploaded.version_id}@100%")
    screen.result({**prepared.document, **report.uploaded_document(uploaded)})


@versions.command("deploy")
@click.argument("specs", nargs=-1, metavar="[VERSION[@PERCENT]]...")
@click.option("--version-id", "version_ids", multiple=True, help="Instead of VERSION.")
@click.option(
    "--percentage", "percentages", type=click.FloatRange(0, 100), multiple=True, help="Its share."
)
@click.option("--message", "-m", help="Why.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deployed.")
@yes_option
@worker_options
@json_option
def deploy_command(
    specs: tuple[str, ...],
    version_ids: tuple[str, ...],
    percentages: tuple[float, ...],
    message: str | None,
    dry_run: bool,
    yes: bool,
    chosen: Chosen,
    screen: Screen,
) -> None:
    """Split traffic among versions. Those without a percentage share what is left.

    \b
    workerctl versions deploy 5e1c…@10% 8d4c…@90%
    """
    from tenantry_cli.confirm import confirm
    from tenantry_cli.workers.api import Refused
    from tenantry_cli.workers.history import explained
    from tenantry_cli.workers.publish.deploy import give_traffic
    from tenantry_cli.workers.traffic import split_of

    split = split_of(specs, version_ids, percentages)
    worker = chosen.worker()
    for version_id, percentage in split.items():
        screen.say(f"  {percentage:g}%  {version_id}")
    document = {
        "worker": worker,
        "versions": [
            {"version_id": version_id, "percentage": percentage}
            for version_id, percentage in split.items()
        ],
    }
    if dry_run:
        screen.say("--dry-run: exiting now.")
        screen.result({**document, "deployment_id": None, "dry_run": True})
        return
    confirm(f"Deploy this to {worker}?", yes=yes)
    with connect() as plane:
        try:
            deployment_id = give_traffic(plane, worker, split, message=message)
        except Refused as refusal:
            raise explained(refusal, worker) from refusal
    screen.done(f"Deployed {worker}")
    screen.result({**document, "deployment_id": deployment_id, "dry_run": False})
