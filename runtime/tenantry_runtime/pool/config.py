"""What a node process is started with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tenantry_runtime.errors import ConfigurationError


class NodeProcessConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The JSON file that `python -m tenantry_runtime.pool` reads."""

    address: str
    """Where edges find the node: `unix:/path/node.sock` or `host:port`."""
    engine: msgspec.Raw
    """`engine.config.NodeConfig`; the front passes it on to the step loop, which checks it."""


def read_config(path: Path) -> NodeProcessConfig:
    """Raise `ConfigurationError` when the file is missing or not of this form."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeProcessConfig)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path}: {error}") from error
