"""The isolate's process: what it imports before it is one, and its loop."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
from collections.abc import Callable
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


def prepare(connection: socket.socket) -> Callable[[], NoReturn]:
    """Make ready what serves the runtime at the other end, and read nothing yet.

    Takes over the process's standard output and error, and its logging. What is returned serves until
    either side closes the stream; then it ends the process.
    """
    run = prepared(connection)

    def serve() -> NoReturn:
        status = 1
        try:
            run()
            status = 0
        finally:
            os._exit(status)

    return serve


def prepared(connection: socket.socket) -> Callable[[], None]:
    """Return what serves until the stream is closed, and then returns itself."""
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

    def run() -> None:
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

    return run
