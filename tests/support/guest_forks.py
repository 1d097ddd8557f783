"""A process that forks guests on demand, unconfined: `python guest_forks.py FD`.

Each message on the descriptor brings one end of a stream, which a fork serves; `h`, for hasty, has it
tell at once who waits in vain.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from tenantry_runtime.workers import guest
from tenantry_runtime.workers.guest import waiting


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    # forks are nobody's to wait for
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    guest.preload()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            if message == b"h":
                waiting.GRACE_S = 0.0
            guest.prepare(socket.socket(fileno=descriptors[0]))()
        os.close(descriptors[0])


main()
