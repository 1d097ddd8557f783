"""A rehearsal is a worker's whole life, and leaves nothing of it in the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tenantry_runtime.workers import engine

_SCRIPT = """
import importlib.util, json, logging, sys, warnings

spec = importlib.util.spec_from_file_location("rehearsed_guest", sys.argv[1])
rehearsed = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rehearsed)

def state():
    lists = sys.path, sys.meta_path, sys.path_hooks, list(sys.path_importer_cache)
    outputs = sys.stdout, sys.stderr, logging.lastResort, logging.StreamHandler.emit, warnings.showwarning
    return [list(map(repr, each)) for each in (*lists, outputs)], list(sys.modules)

rehearsed.preload()
before = state()
rehearsed.rehearse()
print(json.dumps(before == state()))
print(len(rehearsed._FILLING) > 0)
"""


def test_a_rehearsal_changes_nothing_that_a_worker_could_see() -> None:
    guest = Path(engine.__file__).with_name("rehearsed_guest.py")
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, guest], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["true", "True"]
