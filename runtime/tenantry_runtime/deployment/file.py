"""The deployment file: one TOML for all machines that serve together.

| key | default | says |
|---|---|---|
| state_dir | ".tenantry" | where each machine keeps logs, and the edge its store |
| **store** | | **where accounts, tokens, limits and usage are** |
| store.url | SQLite in edge.state_dir | of a PostgreSQL database: postgresql://USER@HOST/DATABASE |
| certificates | none | directory of `workerctl node certificate`: what TCP nodes and the edge use |
| **catalog** | | **what is offered** |
| catalog.file | the built-in one | JSON file of models; excludes catalog.models |
| catalog.models | none | inline, as tables with the keys of `catalog.entry.CatalogEntry` |
| catalog.offer | all | names of those models that this deployment serves |
| **edge** | | **the HTTP process** |
| edge.host | "127.0.0.1" | where it listens |
| edge.port | 8787 | |
| edge.state_dir | state_dir | what it keeps, and the store where that is SQLite |
| edge.show_routing | false | response headers say which members served |
| edge.operator | nobody | account whose admin tokens open /metrics, /operator/overview and /console |
| edge.grace_s | 5.0 | for open connections when it ends |
| edge.limits | | keys of `edge.config.Limits` |
| edge.liveness | | keys of `pool.liveness.Liveness` |
| edge.incidents | | keys of `edge.config.IncidentsConfig`: how long they are kept, and how many |
| edge.drift | | keys of `edge.config.DriftConfig`: how many answers are compared with what prefill members would have said |
| edge.tls | of certificates | files by which it calls nodes |
| **nodes** | required | **a list of tables, one a device** |
| nodes.name | required | names its logs, its certificate and `serve --only` |
| nodes.address | required | "unix:PATH", or "HOST:PORT" as other machines reach it |
| nodes.listen | address | where it listens, if not there: "0.0.0.0:PORT" |
| nodes.members | required | what it runs: "MODEL:prefill", "MODEL:decode" |
| nodes.device | "cpu" | that, "cuda" or "cuda:N" |
| nodes.threads | 1 | of a CPU |
| nodes.dtype | "float32", "bfloat16" on a GPU | of computation, and of weights that are not kept as stored |
| nodes.weights | by the model's size | "stored" or "dense": how matrices are kept in memory |
| nodes.cache | "bf16" | format of its members' pages |
| nodes.cache_bytes | 256 MiB on a CPU | per pool of pages |
| nodes.num_pages | of cache_bytes | per pool of pages; excludes cache_bytes |
| nodes.memory_fraction | 0.831 of a GPU | of the device's memory, for weights and pools; excludes both |
| nodes.chunk_tokens | 512 | prompt tokens per step |
| nodes.handoff_bytes | 4 MiB, 64 MiB on a GPU | of pages that hand-offs bring, and take, per step |
| nodes.max_batch | 64 | sequences of one pool that hold pages |
| nodes.max_waiting | 512 | sequences of one pool in the queue |
| nodes.deterministic | false | tokens do not depend on the batch |
| nodes.check_pages | true | compare the tags of all pages read and written |
| nodes.max_incidents | 16 | per minute, before a model takes no work |
| nodes.drills | false | let faults be put in |
| nodes.drain_s | 25.0 | how long what runs may go on when it is told to end |
| nodes.directories | the pool's, or the catalog's | table from model to its checkpoint on this node |
| nodes.tls | of certificates | files by which it is called, and calls other nodes |
| **pools** | every member | **exceptions for all members of one model in one phase** |
| pools.model | required | |
| pools.phase | required | "prefill" or "decode" |
| pools.nodes | all that list it | whose members serve; those of others are not started |
| pools.cache | the node's | format of their pages |
| pools.directory | the catalog's | of their checkpoint: formats of weights follow the phase |
| **workers** | | **tenants' own code; without this table none runs** |
| workers.interpreter | the runtime's own | Python 3.11 or newer that isolates run |
| workers.floor | "user-namespace" | the edge refuses to start where isolation is less: "full", "user-namespace" or "no-namespace" |
| workers.unsafe_no_sandbox | false | run with whatever isolation there is, also none: for one's own code alone |
| workers.is_optional | false | where isolation is less, serve models only, rather than refuse to start |
| workers.domain | "localhost" | workers are at WORKER.ACCOUNT.domain |
| workers.domains | none | table from account to the domains at and below which its workers may have routes |
| workers.index_url | pip's own | index of the wheels that workers depend on |
| workers.cron | true | run cron triggers here; edges of one store share them |
| workers.test_scheduled | false | /__scheduled of a worker runs a trigger, whoever calls: for developers |
| workers.tails_port | 0 | where `tail` listens, at edge.host; 0: any free one, which is told to those who ask |
| workers.tails_url | the port itself | wss://HOST that a proxy leads to that port, whose paths begin with /tails/ |
| workers.engine | | keys of `workers.engine.config.EngineConfig`: pools, memory, templates that tenants share |
| workers.limits | | keys of `edge.worker_routes.limits.RouteLimits`: requests, bodies, headers |
| workers.logs | | keys of `workers.logs.kept.LogLimits`: how much is kept |
| workers.outbound | | keys of `workers.bindings.outbound.config.OutboundConfig`: whom workers may call |
| **tls** | | **keys of nodes.tls and edge.tls** |
| tls.ca | required | PEM file of the certificate that signed all others |
| tls.certificate | required | PEM file |
| tls.key | required | PEM file, private |

Relative paths start at the file. A model of a node goes by any of its names in the catalog.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.catalog import CatalogEntry
from tenantry_runtime.core import Phase
from tenantry_runtime.edge.config import DriftConfig, IncidentsConfig, Limits, Seconds
from tenantry_runtime.edge.workers_config import WorkersConfig
from tenantry_runtime.engine.config import DtypeName, WeightsName
from tenantry_runtime.pool.config import DEFAULT_DRAIN_S
from tenantry_runtime.pool.liveness import Liveness
from tenantry_runtime.pool.tls import TlsFiles

Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


class CatalogPart(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What is offered."""

    file: str | None = None
    models: tuple[CatalogEntry, ...] = ()
    offer: Annotated[tuple[str, ...], Meta(min_length=1)] | None = None


class EdgePart(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The HTTP process."""

    host: str = "127.0.0.1"
    port: Port = 8787
    state_dir: str | None = None
    show_routing: bool = False
    operator: str | None = None
    grace_s: Seconds = 5.0
    limits: Limits = Limits()
    liveness: Liveness = Liveness()
    incidents: IncidentsConfig = IncidentsConfig()
    drift: DriftConfig = DriftConfig()
    tls: TlsFiles | None = None


class NodePart(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One device. What is unset is as `engine.config.NodeConfig` has it."""

    name: str
    address: str
    members: Annotated[tuple[str, ...], Meta(min_length=1)]
    listen: str | None = None
    device: str | UnsetType = UNSET
    threads: Count | UnsetType = UNSET
    dtype: DtypeName | UnsetType = UNSET
    weights: WeightsName | UnsetType = UNSET
    cache: CacheName = "bf16"
    cache_bytes: Count | UnsetType = UNSET
    num_pages: Count | UnsetType = UNSET
    memory_fraction: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET
    chunk_tokens: Count | UnsetType = UNSET
    handoff_bytes: Count | UnsetType = UNSET
    max_batch: Count | UnsetType = UNSET
    max_waiting: Count | UnsetType = UNSET
    deterministic: bool | UnsetType = UNSET
    check_pages: bool | UnsetType = UNSET
    max_incidents: Count | UnsetType = UNSET
    drills: bool | UnsetType = UNSET
    drain_s: Annotated[float, Meta(ge=0)] = DEFAULT_DRAIN_S
    directories: dict[str, str] = {}
    tls: TlsFiles | None = None


class PoolPart(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Exceptions for one model in one phase."""

    model: str
    phase: Phase
    nodes: Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    cache: CacheName | None = None
    directory: str | None = None


class StorePart(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Where accounts, tokens, limits and usage are."""

    url: str | None = None
    """May hold a password; what it leaves out comes from the environment (PGPASSWORD, PGPASSFILE)."""


class DeploymentFile(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The whole file."""

    state_dir: str = ".tenantry"
    store: StorePart = StorePart()
    certificates: str | None = None
    catalog: CatalogPart = CatalogPart()
    edge: EdgePart = EdgePart()
    nodes: Annotated[tuple[NodePart, ...], Meta(min_length=1)]
    pools: tuple[PoolPart, ...] = ()
    workers: WorkersConfig | None = None
