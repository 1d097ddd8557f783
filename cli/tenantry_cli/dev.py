"""`workerctl dev`: a whole runtime on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from .installed import require_packages, runtime_imports
from .operator import store_option

# `serve` starts the processes that import these; better to say at once what they would miss
RUNTIME_PACKAGES = ("torch", "grpc", "granian", "starlette", "sqlalchemy", "safetensors")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8787,
    show_default=True,
    help="Port to listen on.",
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".tenantry"),
    show_default=True,
    help="Where accounts, tokens and usage are kept.",
)
@store_option
@click.option(
    "--catalog",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="JSON file of the models to serve; default: both nano models.",
)
@click.option(
    "--cache",
    type=click.Choice(["bf16", "fp8"]),
    default="bf16",
    show_default=True,
    help="Format of the models' cache; fp8 holds almost twice the tokens.",
)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="What models compute on: cpu, cuda or cuda:N.",
)
@click.option(
    "--pools",
    is_flag=True,
    help="Run prefill and decode as two nodes, as on a cluster; one node is faster here.",
)
@click.option(
    "--unsafe-no-sandbox",
    is_flag=True,
    help="Run workers however little this machine confines them: your own code only.",
)
@click.option("--demo", is_flag=True, help="Ask each model one question after the start.")
@click.option(
    "--config",
    "-c",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Of the worker to serve too; default: the nearest in this folder or above it, if any.",
)
@click.option("--env", "-e", "environment", metavar="NAME", help="Its env.NAME section.")
@click.pass_context
def dev(
    ctx: click.Context,
    host: str,
    port: int,
    state_dir: Path,
    store_url: str | None,
    catalog: Path | None,
    cache: Literal["bf16", "fp8"],
    device: str,
    pools: bool,
    unsafe_no_sandbox: bool,
    demo: bool,
    config: Path | None,
    environment: str | None,
) -> None:
    """Serve models on this machine until Ctrl-C, and the worker of this folder, if there is one.

    Its credentials are left where the SDK and `workerctl ai` find them. The worker is deployed again
    whenever one of its files changes; its secrets are in .dev.vars.
    """
    require_packages(RUNTIME_PACKAGES)
    with runtime_imports():
        from tenantry_runtime.dev import serve
    from .workers.live import live_worker

    with live_worker(Path.cwd(), port=port, config=config, environment=environment):
        exit_code = serve(
            host=host,
            port=port,
            state_dir=state_dir,
            store=store_url or None,
            catalog=catalog,
            cache=cache,
            device=device,
            pools=pools,
            unsafe_no_sandbox=unsafe_no_sandbox,
            demo=demo,
        )
    ctx.exit(exit_code)
