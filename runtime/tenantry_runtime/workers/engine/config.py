"""What an engine is given to run workers with."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Bytes: TypeAlias = Annotated[int, Meta(ge=1)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Milliseconds: TypeAlias = Annotated[float, Meta(gt=0)]


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The operator's; what one version may take is in its `WorkerLimits`."""

    share_templates: bool = True
    """Whether tenants' isolates may come of one template. Isolates of one template have one hash seed and
    one layout of memory, which a tenant may learn of its neighbors."""
    template_spawns: Count = 500
    """After so many isolates a template is replaced, and with it seed and layout."""
    template_s: Seconds = 3600.0
    """Or after so long."""
    template_idle_s: Seconds = 600.0
    """A set of dependencies that nobody has asked for so long has no template; the set of none always has."""
    max_templates: Count = 32
    """Of all sets; the one least recently asked for gives way."""

    groups: bool = True
    """Whether the kernel counts memory, processes and CPU by control groups, where this machine lets it.
    An isolate joins its own when it is made, which takes some 10 ms."""
    template_memory_bytes: Bytes | None = None
    """Of all isolates of one template, by their control group; None: three quarters of the machine's."""
    template_tasks: Count = 16384
    """Processes and threads of all isolates of one template, likewise."""
    template_cpus: Annotated[float, Meta(gt=0)] | None = None
    """Of all isolates of one template, likewise; None: no limit."""

    blank_isolates: Annotated[int, Meta(ge=0)] = 4
    """Kept ready of the template without dependencies: a cold start is a load, not a fork."""
    blank_isolates_each: Annotated[int, Meta(ge=0)] = 1
    """Kept ready of every other template."""

    max_isolates: Count = 2000
    """Of all versions, blank ones too. Above it the one idle for longest gives way, or the invocation waits."""
    max_isolates_each: Count = 4
    """Of one version in mode `isolate`: another starts when those there are full or have no CPU left."""
    idle_memory_bytes: Bytes = 2 << 30
    """Of all isolates that run nothing, private to them; above it those idle for longest end."""
    idle_s: Seconds = 900.0
    """An isolate that has run nothing for so long ends."""
    idle_cpu_ms: Milliseconds = 100.0
    """That an isolate may use between two invocations; a worker does its work while it is asked."""

    queue_length: Annotated[int, Meta(ge=0)] = 200
    """Invocations of one version that wait for a place; more are answered `overloaded` at once."""
    queue_s: Seconds = 10.0
    """That one of them waits."""

    load_cpu_ms: Milliseconds = 2000.0
    """Of an import: twice what uploads are held to, so that what passed once passes on a busy machine."""
    load_s: Seconds = 15.0
    backoff_s: Seconds = 0.5
    """After a version could not be loaded, until it is tried again; doubled each time."""
    max_backoff_s: Seconds = 30.0

    poll_s: Seconds = 0.005
    """Between two looks at the CPU time of those that run something."""
    drain_s: Seconds = 30.0
    """That invocations have to end, `wait_until` included, when the engine does."""
    bundle_cache_bytes: Annotated[int, Meta(ge=0)] = 64 << 20
    """Of files of bundles, kept in memory for the next isolate."""

    def __post_init__(self) -> None:
        if self.max_backoff_s < self.backoff_s:
            raise ValueError("max_backoff_s is less than backoff_s")
        if self.blank_isolates >= self.max_isolates:
            raise ValueError("blank_isolates leave no room in max_isolates")
