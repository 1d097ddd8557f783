"""`python -m tenantry_runtime.pool CONFIG.json`: run a node until it is told to stop."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.log_lines import log_to_stderr

from .config import NodeProcessConfig, read_config
from .loop_link import ENGINE
from .node import UNUSABLE, TakeRecord, serve_node

_log = logging.getLogger(__name__)


def main(arguments: list[str], *, build: str = ENGINE) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tenantry_runtime.pool CONFIG.json\n")
        return 2

    try:
        log_to_stderr(os.environ)
        config = read_config(Path(arguments[0]))
        with _exported_log(config, os.environ) as export:
            return _served(config, build, export)
    except ConfigurationError as error:
        return _unusable(error)


def _served(config: NodeProcessConfig, build: str, export: TakeRecord | None) -> int:
    try:
        return anyio.run(lambda: serve_node(config, build=build, export=export))
    except ConfigurationError as error:
        # said as long as there is a collector to hear it
        return _unusable(error)


def _unusable(error: ConfigurationError) -> int:
    _log.error("%s", error)
    return UNUSABLE


@contextmanager
def _exported_log(
    config: NodeProcessConfig, environ: Mapping[str, str]
) -> Iterator[TakeRecord | None]:
    """Send this process's log to a collector if one is named, and yield what does so with other records."""
    if not any(name.startswith("OTEL_EXPORTER_OTLP_") for name in environ):
        yield None
        return
    # a fifth of a second and 12 MB, which a node without a collector does without
    from tenantry_runtime.telemetry import exported_log, node_resource

    with exported_log(environ, node_resource(config.name)) as handler:
        yield None if handler is None else handler.handle


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
