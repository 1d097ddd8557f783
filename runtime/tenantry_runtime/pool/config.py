"""What a node process is started with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tenantry_runtime.errors import ConfigurationError

from .tls import TlsFiles, require_safe

DEFAULT_DRAIN_S = 25.0
"""Less than the half minute that supervisors give a process after SIGTERM."""


class NodeProcessConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The JSON file that `python -m tenantry_runtime.pool` reads."""

    address: str
    """Where edges find the node: `unix:/path/node.sock` or `host:port`."""
    engine: msgspec.Raw
    """`engine.config.NodeConfig`; the front passes it on to the step loop, which checks it."""
    reached_at: str = ""
    """How other nodes call it, where that differs from how edges do."""
    tls: TlsFiles | None = None
    """Needed for an address that other machines can reach; also shown to nodes that pages go to."""
    drain_s: float = DEFAULT_DRAIN_S
    """How long what runs may go on after SIGTERM; 0: not at all."""

    def __post_init__(self) -> None:
        if self.drain_s < 0:
            raise ValueError(f"drain_s must be at least 0, not {self.drain_s!r}")

    @property
    def name(self) -> str:
        """What edges, metrics and traces call the node."""
        return self.reached_at or self.address


def read_config(path: Path) -> NodeProcessConfig:
    """Raise `ConfigurationError` when the file is missing or not of this form."""
    try:
        config = msgspec.json.decode(path.read_bytes(), type=NodeProcessConfig)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    require_safe(config.address, config.tls)
    return config
