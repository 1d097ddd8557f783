"""`python -m tenantry_runtime.pool CONFIG.json`: run a node until it is told to stop."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import anyio

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.log_lines import log_to_stderr

from .config import read_config
from .loop_link import ENGINE
from .node import UNUSABLE, serve_node

_log = logging.getLogger(__name__)


def main(arguments: list[str], *, build: str = ENGINE) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tenantry_runtime.pool CONFIG.json\n")
        return 2

    try:
        log_to_stderr(os.environ)
        config = read_config(Path(arguments[0]))
        return anyio.run(lambda: serve_node(config, build=build))
    except ConfigurationError as error:
        _log.error("%s", error)
        return UNUSABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
