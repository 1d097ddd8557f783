"""Who may connect over TCP: both sides show a certificate of one private CA (`certificates.py`).

| address | transport |
|---|---|
| `unix:/path` | plain: the socket file's permissions say who connects |
| `host:port` with certificates | TLS, and each side checks the other's certificate |
| `host:port` on the loopback interface, without | plain |
| any other `host:port` without | refused |
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

import msgspec

from tenantry_runtime.errors import ConfigurationError


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PEM files, as `workerctl node certificate` makes them."""

    ca: str
    """The certificate that all others are signed with."""
    certificate: str
    key: str

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Return CA, certificate and key; raise `ConfigurationError`, which names the file."""
        return _read(self.ca), _read(self.certificate), _read(self.key)


def is_unix(address: str) -> bool:
    return address.startswith("unix:")


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(address: str) -> str:
    """Return the host of `host:port`, without the brackets of an IPv6 address."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def require_safe(address: str, tls: TlsFiles | None) -> None:
    """Raise `ConfigurationError` for an address that strangers could reach without a certificate."""
    if tls is None and not is_unix(address) and not is_loopback(host_of(address)):
        raise ConfigurationError(
            f"{address} is reachable from other machines, which needs certificates: "
            "make them with `workerctl node certificate` and name them under `tls`"
        )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
