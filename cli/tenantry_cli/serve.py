"""`workerctl serve`: the parts of a deployment that belong to this machine."""

from __future__ import annotations

from pathlib import Path

import click

from .dev import RUNTIME_PACKAGES
from .installed import require_packages, runtime_imports


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="A node, or edge; repeat it for more. Default: all at loopback addresses.",
)
@click.option(
    "--grant",
    metavar="ACCOUNT",
    help="Make this account, and leave its token where SDK and workerctl ai find it.",
)
@click.option(
    "--unsafe-no-sandbox",
    is_flag=True,
    help="Run workers however little this machine confines them: your own code only.",
)
@click.pass_context
def serve(
    ctx: click.Context,
    file: Path,
    only: tuple[str, ...],
    grant: str | None,
    unsafe_no_sandbox: bool,
) -> None:
    """Serve parts of the deployment in FILE until Ctrl-C.

    FILE is a TOML for all machines that serve together: samples/cluster has two of them, and
    tenantry_runtime/deployment/file.py lists its keys.
    """
    require_packages(RUNTIME_PACKAGES)
    with runtime_imports():
        from tenantry_runtime.supervisor import serve as serve_parts
    ctx.exit(serve_parts(file, only=only, grant=grant, unsafe_no_sandbox=unsafe_no_sandbox))
