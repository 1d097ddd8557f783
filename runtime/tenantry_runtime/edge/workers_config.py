"""How an edge runs workers; without it, it runs none.

The tables of the parts are read by the parts' own types, in `read_parts`: loading those takes a second that
whoever only passes a configuration on can do without.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from tenantry_runtime.edge.worker_routes.limits import RouteLimits
    from tenantry_runtime.workers.bindings import OutboundConfig
    from tenantry_runtime.workers.engine.config import EngineConfig
    from tenantry_runtime.workers.logs import LogLimits

Table: TypeAlias = dict[str, Any]
"""Any: what TOML and JSON have."""

Domain: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9_-]+(\.[a-z0-9_-]+)*$", max_length=253)]

T = TypeVar("T")


class WorkersConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What an operator says of workers."""

    interpreter: str | None = None
    """Python 3.11 or newer, which isolates run; None: the runtime's own."""
    floor: Literal["full", "user-namespace", "no-namespace"] = "user-namespace"
    """The least level of isolation (`workers.sandbox.Level`) at which other people's code runs."""
    unsafe_no_sandbox: bool = False
    """Run whatever the machine can confine, also nothing: for a developer's own code alone."""
    is_optional: bool = False
    """Serve models also where workers cannot run; False: refuse to start."""
    domain: Domain = "localhost"
    """Workers are at WORKER.ACCOUNT.domain."""
    domains: dict[str, tuple[Domain, ...]] = {}
    """By account: at and below which its workers may have routes."""
    index_url: Annotated[str, Meta(pattern=r"^https?://")] | None = None
    """Where dependencies' wheels come from; None: as pip is configured here."""
    cron: bool = True
    """Run cron triggers; edges of one store share them."""
    test_scheduled: bool = False
    """Let `/__scheduled?cron=…` of a worker run a trigger: for developers, as whoever calls may."""
    tails_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Where tails are listened to, at the edge's host; 0: any free one, which their URLs name."""
    tails_url: Annotated[str, Meta(pattern=r"^wss?://[^/?#]+/?$")] | None = None
    """What leads to that port from outside, by way of a proxy; None: the port itself."""
    engine: Table = {}
    limits: Table = {}
    logs: Table = {}
    outbound: Table = {}

    def at(self, folder: Path) -> WorkersConfig:
        """Return the same with an absolute path of the interpreter; one without a slash is on `PATH`."""
        if self.interpreter is None or "/" not in self.interpreter:
            return self
        return msgspec.structs.replace(self, interpreter=str(folder / self.interpreter))


class PartMisfit(ValueError):
    """A part's table holds what the part does not have."""

    def __init__(self, part: str, error: msgspec.ValidationError, type_: type[Any]) -> None:
        """`type_` is what the table should have been."""
        self.part = part
        self.error = error
        self.type_ = type_
        super().__init__(part, error)

    def __str__(self) -> str:
        return f"workers.{self.part}: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What the parts' tables say."""

    engine: EngineConfig
    limits: RouteLimits
    logs: LogLimits
    outbound: OutboundConfig


def read_parts(config: WorkersConfig) -> WorkerParts:
    """Read the parts' tables; raise `PartMisfit`."""
    # late, as the module's docstring says
    from tenantry_runtime.edge.worker_routes.limits import RouteLimits
    from tenantry_runtime.workers.bindings import OutboundConfig
    from tenantry_runtime.workers.engine.config import EngineConfig
    from tenantry_runtime.workers.logs import LogLimits

    return WorkerParts(
        engine=_read("engine", config.engine, EngineConfig),
        limits=_read("limits", config.limits, RouteLimits),
        logs=_read("logs", config.logs, LogLimits),
        outbound=_read("outbound", config.outbound, OutboundConfig),
    )


def has_tables(config: WorkersConfig) -> bool:
    """Say whether a part has a table of its own."""
    return bool(config.engine or config.limits or config.logs or config.outbound)


def _read(part: str, table: Table, type_: type[T]) -> T:
    try:
        return msgspec.convert(table, type_)
    except msgspec.ValidationError as error:
        raise PartMisfit(part, error, type_) from error
