"""`workerctl node`: one node of several, and the certificates by which they trust each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from .installed import require_packages, runtime_imports

if TYPE_CHECKING:
    from tenantry_runtime.pool.tls import TlsFiles

NODE_PACKAGES = ("torch", "grpc", "safetensors")
CALLING_PACKAGES = ("grpc",)
CERTIFICATE_PACKAGES = ("cryptography", "grpc")

_FILE = click.Path(dir_okay=False, exists=True, path_type=Path)

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _tls_options(whose: str) -> Callable[[_Command], _Command]:
    """Add the options that name an authority, a certificate and its key."""

    def decorate(command: _Command) -> _Command:
        for name, help_text in (
            ("--tls-key", f"{whose} key."),
            ("--tls-certificate", f"{whose} certificate."),
            ("--tls-ca", "The authority's certificate (ca.crt)."),
        ):
            command = click.option(name, type=_FILE, help=help_text)(command)
        return command

    return decorate


@click.group(invoke_without_command=True)
@click.option(
    "--member",
    "members",
    multiple=True,
    metavar="MODEL:PHASE",
    help="A model in one phase, prefill or decode; repeat it for more.",
)
@click.option("--address", metavar="ADDRESS", help="unix:PATH, or HOST:PORT to listen on.")
@click.option(
    "--reached-at", default="", metavar="HOST:PORT", help="How other nodes call it, if not so."
)
@click.option("--catalog", type=_FILE, help="JSON file of the models; default: both nano models.")
@click.option(
    "--cache",
    type=click.Choice(["bf16", "fp8"]),
    default="bf16",
    show_default=True,
    help="Format of the members' cache.",
)
@click.option(
    "--prefill-cache",
    type=click.Choice(["bf16", "fp8"]),
    help="Format of the prefill members' cache, if it is another.",
)
@click.option(
    "--device", default="cpu", show_default=True, help="What it computes on: cpu, cuda or cuda:N."
)
@click.option(
    "--memory-fraction",
    type=click.FloatRange(0, 1, min_open=True),
    help="Of the device's memory, for its weights and cache.  [default: 0.831 of a GPU]",
)
@_tls_options("The node's")
@click.option(
    "--drain-s",
    type=click.FloatRange(min=0),
    default=25.0,
    show_default=True,
    help="How long what runs may go on after Ctrl-C.",
)
@click.pass_context
def node(
    ctx: click.Context,
    members: tuple[str, ...],
    address: str | None,
    reached_at: str,
    catalog: Path | None,
    cache: Literal["bf16", "fp8"],
    prefill_cache: Literal["bf16", "fp8"] | None,
    device: str,
    memory_fraction: float | None,
    tls_ca: Path | None,
    tls_certificate: Path | None,
    tls_key: Path | None,
    drain_s: float,
) -> None:
    """Run one node in the foreground until Ctrl-C.

    \b
    workerctl node --member kimi-k2.6:prefill --member glm-5.2:decode \\
        --address unix:/tmp/node.sock

    An address that other machines reach needs certificates: `workerctl node certificate` makes
    them, and --tls-ca, --tls-certificate and --tls-key name them.
    """
    if ctx.invoked_subcommand is not None:
        return
    if not members or address is None:
        raise click.UsageError("give at least one --member, and the --address")
    _require_all_or_none(tls_ca, tls_certificate, tls_key)
    require_packages(NODE_PACKAGES)
    with runtime_imports():
        from tenantry_runtime.errors import ConfigurationError
        from tenantry_runtime.pool.foreground import NodeOptions, run_node
    options = NodeOptions(
        members=members,
        address=address,
        reached_at=reached_at,
        catalog=catalog,
        cache=cache,
        prefill_cache=prefill_cache,
        device=device,
        memory_fraction=memory_fraction,
        tls=_tls_files(tls_ca, tls_certificate, tls_key),
        drain_s=drain_s,
    )
    try:
        ctx.exit(run_node(options, click.echo))
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error


@node.command()
@click.argument("address")
@_tls_options("The caller's")
def drain(
    address: str, tls_ca: Path | None, tls_certificate: Path | None, tls_key: Path | None
) -> None:
    """Let the node at ADDRESS finish what it runs and end, taking nothing new.

    ADDRESS is unix:PATH or HOST:PORT, as an edge calls it. The command returns when the node has
    begun; it ends when nothing runs there any more, at the latest after its own --drain-s.
    """
    _require_all_or_none(tls_ca, tls_certificate, tls_key)
    require_packages(CALLING_PACKAGES)
    import anyio

    from tenantry_runtime.errors import ConfigurationError
    from tenantry_runtime.pool.client import drain_node

    tls = _tls_files(tls_ca, tls_certificate, tls_key)
    try:
        anyio.run(drain_node, address, tls)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    except ConnectionError as error:
        raise click.ClickException(f"the node at {address} does not answer: {error}") from error
    click.echo(f"{address} is draining")


@node.command()
@click.argument("name")
@click.option(
    "--ca",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Directory of the private authority; made if there is none.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A DNS name or IP address that others call it by; repeat it for more.",
)
def certificate(name: str, folder: Path, hosts: tuple[str, ...]) -> None:
    """Make a key and a certificate for the node or edge NAME.

    Who has a certificate of the authority may call every node. Take NAME.crt, NAME.key and ca.crt
    to its machine; ca.key stays where it is.
    """
    require_packages(CERTIFICATE_PACKAGES)
    from tenantry_runtime.errors import ConfigurationError
    from tenantry_runtime.pool.certificates import make_certificate

    try:
        tls = make_certificate(folder, name, hosts)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    for path in (tls.certificate, tls.key, tls.ca):
        click.echo(path)


def _require_all_or_none(*files: Path | None) -> None:
    if len([file for file in files if file is not None]) not in (0, len(files)):
        raise click.UsageError("give all of --tls-ca, --tls-certificate and --tls-key, or none")


def _tls_files(ca: Path | None, certificate: Path | None, key: Path | None) -> TlsFiles | None:
    from tenantry_runtime.pool.tls import TlsFiles

    if ca is None:
        return None
    return TlsFiles(ca=str(ca), certificate=str(certificate), key=str(key))
