"""Granian inside our own event loop: one process, one listening socket, one way to stop."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server.embed import Server
from starlette.types import ASGIApp

from tenantry_runtime.errors import ConfigurationError

BACKLOG = 1024
"""Connections that wait to be accepted."""

MAX_CONNECTIONS = 8192
"""Granian's own limit. Far above the limit on requests, which answers; this one lets clients wait."""


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Bind a TCP socket; raise `ConfigurationError` if the address is taken or not ours.

    Leaving the block closes it, unless a server has taken it over.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        problem = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise ConfigurationError(problem) from error
    with bound:
        yield bound


def url_of(bound: socket.socket) -> str:
    """Return the URL under which a socket answers."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class EdgeServer(Server):
    """Serves an application on a socket that is already bound.

    Granian would bind the port with `SO_REUSEPORT`: a second edge on the same port would start
    without an error and take half of the first one's connections.
    """

    def __init__(self, app: ASGIApp, bound: socket.socket) -> None:
        host, port = bound.getsockname()[:2]
        super().__init__(
            app,
            address=host,
            port=port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.auto,
            websockets=False,
            backlog=BACKLOG,
            backpressure=MAX_CONNECTIONS,
            # it warns at each start that embedding is experimental
            log_level=LogLevels.error,
            log_dictconfig=_through_root(),
        )
        self._bound = bound

    def _init_shared_socket(self) -> None:
        # granian's stubs lack this constructor, which its own pickling of sockets uses
        # granian closes it in the end
        fd = self._bound.detach()
        self._shd = SocketHolder(fd, False, BACKLOG)  # type: ignore[call-arg, assignment]

    def end(self) -> None:
        """Accept no more connections; `serve` returns when the open ones have closed."""
        self.stop()  # type: ignore[no-untyped-call]  # granian's methods are not annotated


# Any: a `logging.config` dictionary
def _through_root() -> dict[str, Any]:
    """Let granian's loggers write where all others do."""
    return {
        "handlers": {},
        "formatters": {},
        "loggers": {
            "_granian": {"level": "ERROR", "propagate": True},
            "granian.access": {"level": logging.CRITICAL, "propagate": True},
        },
    }
