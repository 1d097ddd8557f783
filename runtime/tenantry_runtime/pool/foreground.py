"""A node in the foreground, as `workerctl node` runs it: says what it does, ends with Ctrl-C."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast, get_args

import anyio
import msgspec

from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.catalog import Catalog, load_catalog
from tenantry_runtime.core import Phase
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.errors import ConfigurationError, UnknownModel

from .config import DEFAULT_DRAIN_S, NodeProcessConfig
from .loop_link import ENGINE
from .messages import MemberDescription
from .node import LOOP_DIED, UNUSABLE, serve_node
from .tls import TlsFiles, is_unix, require_safe

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What the command line says of a node."""

    members: tuple[str, ...]
    """`MODEL:PHASE`, the model by id or alias."""
    address: str
    reached_at: str = ""
    catalog: Path | None = None
    cache: CacheName = "bf16"
    """Of decode members, and of prefill members where nothing else is said."""
    prefill_cache: CacheName | None = None
    device: str = "cpu"
    memory_fraction: float | None = None
    tls: TlsFiles | None = None
    drain_s: float = DEFAULT_DRAIN_S


def node_config(options: NodeOptions) -> NodeProcessConfig:
    """Return the node's configuration; raise `ConfigurationError` where an option is wrong."""
    require_safe(options.address, options.tls)
    if options.reached_at:
        require_safe(options.reached_at, options.tls)
    sources = model_sources(options, load_catalog(options.catalog))
    try:
        engine = NodeConfig(
            models=sources,
            cache=options.cache,
            device=options.device,
            memory_fraction=options.memory_fraction,
        )
        return NodeProcessConfig(
            address=options.address,
            reached_at=options.reached_at,
            engine=msgspec.Raw(msgspec.json.encode(engine)),
            tls=options.tls,
            drain_s=options.drain_s,
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def model_sources(options: NodeOptions, catalog: Catalog) -> tuple[ModelSource, ...]:
    """Return the models that the members are of, each once."""
    phases: dict[str, list[Phase]] = {}
    for member in options.members:
        name, _, phase = member.rpartition(":")
        if not name or phase not in get_args(Phase):
            raise ConfigurationError(
                f"member {member!r} is not of the form MODEL:prefill or MODEL:decode"
            )
        try:
            entry = catalog.resolve(name)
        except UnknownModel as error:
            raise ConfigurationError(f"member {member!r}: {error}") from error
        named = phases.setdefault(entry.id, [])
        if phase in named:
            raise ConfigurationError(f"member {member!r} is named twice")
        named.append(cast(Phase, phase))
    if not phases:
        raise ConfigurationError("name at least one member: MODEL:prefill or MODEL:decode")
    return tuple(_source(options, catalog, model, named) for model, named in phases.items())


def run_node(options: NodeOptions, say: Say, *, build: str = ENGINE) -> int:
    """Serve until told to end; return the exit code. What is wrong is logged or raised."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    config = node_config(options)
    started_s = time.monotonic()
    say(f"Loading {', '.join(options.members)}")

    def on_ready(members: Sequence[MemberDescription]) -> None:
        say(f"Ready after {time.monotonic() - started_s:.1f} s")
        for line in _table(members):
            say(f"  {line}")
        say(f"Edges and nodes find it at {options.reached_at or options.address}")
        say(f"Traffic is {_protection(options)}")
        say("Ctrl-C lets what runs finish and ends it; twice ends it at once")

    code = anyio.run(
        partial(
            serve_node,
            config,
            build=build,
            on_ready=on_ready,
            on_leaving=lambda: say("Draining: finishing what runs, taking nothing new"),
        )
    )
    say("Stopped" if code not in (UNUSABLE, LOOP_DIED) else "The node has failed")
    return code


def _source(options: NodeOptions, catalog: Catalog, model: str, phases: list[Phase]) -> ModelSource:
    return ModelSource(
        id=model,
        directory=catalog.resolve(model).directory,
        phases=tuple(phases),
        cache=options.cache,
        prefill_cache=options.prefill_cache if "prefill" in phases else None,
    )


def _table(members: Iterable[MemberDescription]) -> list[str]:
    return [
        f"{member.model} {member.phase}: weights {member.weights_format}, cache "
        f"{member.cache_format}, {member.num_pages:,} pages of {member.page_tokens} tokens"
        for member in members
    ]


def _protection(options: NodeOptions) -> str:
    if is_unix(options.address):
        return "on this machine alone, for who may open the socket"
    if options.tls is None:
        return "on this machine alone, in the clear"
    return f"encrypted, for holders of certificates that {options.tls.ca} signed"
