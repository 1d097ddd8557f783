"""`python -m tenantry_runtime.edge CONFIG.json`: the HTTP process."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from tenantry_runtime.errors import ConfigurationError

from .config import read_config
from .process import run

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main(arguments: Sequence[str]) -> int:
    """Run until told to end; 1 for a configuration that cannot be used, 2 for a wrong call."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tenantry_runtime.edge CONFIG.json\n")
        return 2
    try:
        anyio.run(run, read_config(Path(arguments[0])))
    except ConfigurationError as error:
        logging.getLogger(__name__).error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
