"""Where a node is reached: a socket of this machine, or a port of some machine."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from tenantry_runtime.pool.tls import host_of, is_loopback, is_unix

MAX_SOCKET_PATH_BYTES = 100
"""Linux allows 107, macOS 103."""

UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket, which processes of this machine reach."""

    path: Path

    def __str__(self) -> str:
        return f"{UNIX}{self.path}"

    @property
    def is_local(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class TcpAddress:
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether this machine alone reaches it."""
        return is_loopback(self.host)


NodeAddress = UnixAddress | TcpAddress


def parse_address(text: str, folder: Path, *, is_called: bool = True) -> NodeAddress:
    """Read an address, at which others call or a node listens; a relative path starts at the folder.

    Raises `ValueError` with what is wrong.
    """
    if is_unix(text):
        return _unix(text.removeprefix(UNIX), folder)
    host, port = host_of(text), text.rpartition(":")[2]
    if not (host and port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        raise ValueError('must be "HOST:PORT" or "unix:PATH"')
    if is_called and is_any(host):
        raise ValueError(
            "is no address at which a node can be called; name the machine here, and this as listen"
        )
    return TcpAddress(host, int(port))


def is_any(host: str) -> bool:
    """Whether it stands for all addresses of a machine, at which nobody can be called."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _unix(text: str, folder: Path) -> UnixAddress:
    if not text:
        raise ValueError("names no socket after unix:")
    # what gRPC also takes for an absolute path
    path = Path(os.path.normpath(folder / (text[2:] if text.startswith("///") else text)))
    if (size := len(os.fsencode(path))) > MAX_SOCKET_PATH_BYTES:
        raise ValueError(
            f"comes to {path}, {size} bytes where a socket's path may have {MAX_SOCKET_PATH_BYTES}; "
            "use a shorter one, or a port of 127.0.0.1"
        )
    return UnixAddress(path)
