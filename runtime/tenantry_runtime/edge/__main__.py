"""`python -m tenantry_runtime.edge CONFIG.json`: the HTTP process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.log_lines import log_to_stderr
from tenantry_runtime.telemetry import logging_of_requests

from .config import read_config
from .event_loop import EdgeLoop
from .garbage import collected_rarely
from .process import run


def main(arguments: Sequence[str]) -> int:
    """Run until told to end; 1 for a configuration that cannot be used, 2 for a wrong call."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tenantry_runtime.edge CONFIG.json\n")
        return 2
    try:
        log_to_stderr(os.environ)
        with logging_of_requests(os.environ):
            config = read_config(Path(arguments[0]))
            with collected_rarely():
                anyio.run(run, config, backend_options={"loop_factory": EdgeLoop})
    except ConfigurationError as error:
        logging.getLogger(__name__).error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
