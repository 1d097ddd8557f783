"""What the runtime and a template say to each other. Standard library only.

Each message is one packet of a Unix socket that keeps packets apart: a JSON object.

| from | message | with descriptors |
|---|---|---|
| runtime | `TemplateOrder`, once | |
| template | `{"ready": {"pid": ...}}`, or `{"failed": "..."}` and its end | |
| runtime | `SpawnOrder` | the isolate's end of its stream, and of its status |
| template | `{"spawned": id}`, or `{"failed": "...", "id": id}` | a descriptor of the process |
| template | `{"exited": id, "signal": ... or null, "code": ... or null}` | |

On the status an isolate says `ready` when it is confined, waits for `go`, and closes it; or it says
why it cannot be confined, and ends.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

MAX_MESSAGE_BYTES = 64 << 10

Namespaces: TypeAlias = Literal["own", "user", ""]
"""`own`: with the capability to make them; `user`: in a user namespace; "": none."""

READY = b"ready"
GO = b"go"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOrder:
    """How a template confines itself, and what is in its root; paths."""

    namespaces: Namespaces
    root: str
    """An empty folder, to mount the root at."""
    binds: list[tuple[str, str]]
    """(source, where it is in the root); read-only."""
    hidden: list[str]
    """Folders of the root that are empty."""
    path: list[str]
    """`sys.path`, in the root."""
    readable: list[str]
    """For Landlock, in the root: what can be read, with all below it."""
    has_landlock: bool
    has_filter: bool
    has_threads: bool
    guest: str
    """The module whose `preload` is called, whose `prepare` makes ready a process, and what that returns serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnOrder:
    """One isolate."""

    id: int
    uid: int | None
    memory_bytes: int
    address_bytes: int
    """More than the template has."""
    num_threads: int | None
    num_files: int
    private_bytes: int
    cpu_s: int | None

    def with_address_bytes(self, address_bytes: int) -> SpawnOrder:
        """Return it with the whole address space."""
        return replace(self, address_bytes=address_bytes)


def encode(order: TemplateOrder | SpawnOrder) -> bytes:
    """Return the packet of an order."""
    return encode_object(asdict(order))


def encode_object(message: dict[str, Any]) -> bytes:
    """Return the packet of any message."""
    return json.dumps(message).encode()


def decode_template_order(packet: bytes) -> TemplateOrder:
    """Read the first packet."""
    return TemplateOrder(**json.loads(packet))


def decode_spawn_order(packet: bytes) -> SpawnOrder:
    """Read a later one."""
    return SpawnOrder(**json.loads(packet))
