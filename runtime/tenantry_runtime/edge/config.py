"""What an edge process is started with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.pool.liveness import Liveness
from tenantry_runtime.pool.tls import TlsFiles
from tenantry_runtime.store_url import check_store_url

from .workers_config import WorkersConfig

Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Number: TypeAlias = Annotated[int, Meta(ge=1)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one request, and all of them together, may take."""

    max_requests: Number = 1024
    """Open at one time; more are refused with `Capacity temporarily exceeded`."""
    max_body_bytes: Number = 10_000_000
    """Workers AI's own limit is 10 MB."""
    body_timeout_s: Seconds = 60.0
    """From the headers to the end of the body."""
    request_timeout_s: Seconds = 600.0
    """From the parsed request to its whole answer, or to the first event of a stream."""
    keep_alive_s: Seconds = 15.0
    """A stream that is silent for so long carries a comment, for the sake of proxies and clients."""
    stall_timeout_s: Seconds = 60.0
    """A client that takes nothing of a stream for so long is given up."""


class BatchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How this edge runs what is queued in batches."""

    max_running: Number = 16
    """At one time: a batch's worth for a node, and soon given back where somebody else comes."""
    lease_s: Seconds = 15.0
    """After which others run what this edge ran when it died."""


class IncidentsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the store keeps incidents. Edges of one store sweep it, each by its own."""

    keep_days: Annotated[float, Meta(gt=0)] = 90.0
    """From when one began."""
    max_kept: Number = 10_000
    """Of each kind; then the oldest go."""


class DriftConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many answers are compared with what prefill members would have said (`drift.py`)."""

    share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Of whole answers; 0: none."""
    places: Number = 4
    """Tokens of each."""


class EdgeNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node, and the certificates by which it is called."""

    address: str
    """`host:port`"""
    tls: TlsFiles | None = None


class EdgeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The JSON file that `python -m tenantry_runtime.edge` reads; its paths start at the file."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8787
    """0: any free one, which the log names."""
    nodes: Annotated[tuple[str | EdgeNode, ...], Meta(min_length=1)]
    """Addresses, `unix:/path/node.sock` or `host:port`, or what else there is to say of a node."""
    liveness: Liveness = Liveness()
    show_routing: bool = False
    """Say in headers which members served a request, and how much of it they had cached."""
    state_dir: str
    """Where the store lies, and what this edge alone keeps."""
    store: str | None = None
    """URL of a PostgreSQL database, which several edges may share; None: SQLite in `state_dir`."""
    catalog: str | None = None
    """A catalog's file; None: the built-in catalog."""
    grace_s: Seconds = 5.0
    """How long open connections have to close when the process is told to end."""
    limits: Limits = Limits()
    batches: BatchConfig = BatchConfig()
    incidents: IncidentsConfig = IncidentsConfig()
    drift: DriftConfig = DriftConfig()
    operator: str | None = None
    """An account whose admin tokens open `/metrics`, `/operator/overview` and `/console`; None: nobody's."""
    workers: WorkersConfig | None = None
    """None: it runs none, and has no control plane."""

    def __post_init__(self) -> None:
        addresses = [node.address for node in self.known_nodes]
        if twice := [address for address in addresses if addresses.count(address) > 1]:
            raise ValueError(f"nodes name {twice[0]} twice")
        if self.store is not None:
            try:
                check_store_url(self.store)
            except ValueError as error:
                raise ValueError(f"store {error}") from error

    @property
    def known_nodes(self) -> tuple[EdgeNode, ...]:
        """The nodes, also where only an address is given."""
        return tuple(
            EdgeNode(address=node) if isinstance(node, str) else node for node in self.nodes
        )


def read_config(path: Path) -> EdgeConfig:
    """Read a configuration, with absolute paths.

    Raises `ConfigurationError` when the file is missing or not of this form.
    """
    try:
        config = msgspec.json.decode(path.read_bytes(), type=EdgeConfig)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    folder = path.absolute().parent
    return msgspec.structs.replace(
        config,
        state_dir=str(folder / config.state_dir),
        catalog=None if config.catalog is None else str(folder / config.catalog),
        nodes=tuple(_absolute(node, folder) for node in config.known_nodes),
        workers=None if config.workers is None else config.workers.at(folder),
    )


def _absolute(node: EdgeNode, folder: Path) -> EdgeNode:
    if node.tls is None:
        return node
    files = {name: str(folder / path) for name, path in msgspec.structs.asdict(node.tls).items()}
    return EdgeNode(address=node.address, tls=TlsFiles(**files))
