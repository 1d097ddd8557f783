"""`python -m tenantry_runtime.edge CONFIG.json`: the HTTP process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.garbage import collected_rarely
from tenantry_runtime.log_lines import log_to_stderr
from tenantry_runtime.telemetry import logging_of_requests

from .config import read_config
from .event_loop import EdgeLoop
from .process import run

UNUSABLE = 1


def main(arguments: Sequence[str]) -> int:
    """Run until told to end; 1 for a configuration that cannot be used, 2 for a wrong call."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tenantry_runtime.edge CONFIG.json\n")
        return 2
    try:
        log_to_stderr(os.environ)
        with logging_of_requests(os.environ):
            return _served(Path(arguments[0]))
    except ConfigurationError as error:
        return _unusable(error)


def _served(file: Path) -> int:
    try:
        config = read_config(file)
        with collected_rarely():
            anyio.run(run, config, backend_options={"loop_factory": EdgeLoop})
    except ConfigurationError as error:
        # said as long as there is a collector to hear it
        return _unusable(error)
    return 0


def _unusable(error: ConfigurationError) -> int:
    logging.getLogger(__name__).error("%s", error)
    return UNUSABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
