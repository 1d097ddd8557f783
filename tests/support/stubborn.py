"""A child that ignores SIGTERM, as its own child does; it prints both process ids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if len(sys.argv) > 1:
        print(os.getpid(), flush=True)
        signal.pause()
    with subprocess.Popen([sys.executable, "-m", "support.stubborn", "again"]):
        print(os.getpid(), flush=True)
        signal.pause()
