"""The isolate's process: what it imports before it is one, and its loop."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
from typing import NoReturn

from .inquiry import answering
from .session import Session
from .waiting import WatchfulSelector

PRELOADED = (
    "base64",
    "collections.abc",
    "concurrent.futures",
    "dataclasses",
    "datetime",
    "decimal",
    "email.message",
    "email.parser",
    "encodings.idna",
    "enum",
    "functools",
    "hashlib",
    "hmac",
    "html",
    "http",
    "http.client",
    "importlib.metadata",
    "importlib.resources",
    "inspect",
    "json",
    "logging",
    "mimetypes",
    "random",
    "re",
    "secrets",
    "string",
    "textwrap",
    "time",
    "traceback",
    "typing",
    "urllib.parse",
    "uuid",
    "zoneinfo",
    "tenantry.workers",
    "tenantry.workers.asgi",
)
"""What workers import: once here, rather than in each isolate."""


def preload() -> None:
    """Import what isolates need, once, in the template that they are forked from.

    It leaves no thread, no open file and no event loop behind.
    """
    for name in PRELOADED:
        importlib.import_module(name)
    # what asyncio imports and caches at its first use
    loop = asyncio.SelectorEventLoop()
    try:
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


def serve(connection: socket.socket) -> NoReturn:
    """Serve the runtime at the other end until either side closes the stream; then end the process.

    Takes over the process's standard output and error, and its logging.
    """
    status = 1
    try:
        run(connection)
        status = 0
    finally:
        os._exit(status)


def run(connection: socket.socket) -> None:
    """Serve until the stream is closed, and return."""
    session: Session
    loop = asyncio.SelectorEventLoop(
        WatchfulSelector(
            lambda num_files: session.is_vain(num_files), lambda: session.tell_who_never_ends()
        )
    )
    is_over = False

    def over() -> None:
        nonlocal is_over
        is_over = True
        loop.stop()

    session = Session(loop, over)
    session.output.install()
    try:
        with answering(session.tell_busy):
            connecting = loop.create_connection(lambda: session.channel, sock=connection)
            loop.run_until_complete(connecting)
            while not is_over:
                try:
                    loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as error:
                    # one of the worker's tasks raised it, which ends nothing but that task
                    session.output.log("error", f"a task raised {type(error).__name__}")
    finally:
        loop.close()
