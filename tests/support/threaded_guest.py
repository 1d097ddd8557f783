"""A guest that leaves a thread behind in its template, which no template may."""

from __future__ import annotations

import socket
import threading
import time
from typing import NoReturn


def preload() -> None:
    """Start a thread that goes on."""
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def prepare(connection: socket.socket) -> NoReturn:
    """Never called."""
    raise SystemExit
