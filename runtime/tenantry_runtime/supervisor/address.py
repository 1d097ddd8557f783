"""Where the edge listens, and the URL under which this machine reaches it."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from tenantry_runtime.deployment import Deployment
from tenantry_runtime.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @property
    def reachable_host(self) -> str:
        """A host of this machine, also where the edge listens on all of them."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)

    @property
    def url(self) -> str:
        return _url(self.reachable_host, self.port)

    @property
    def api_url(self) -> str:
        """Where clients' calls begin."""
        return f"{self.url}/client/v4"

    @property
    def listening_url(self) -> str:
        """What it was told, which may be all addresses of this machine."""
        return _url(self.host, self.port)

    def check_free(self, option: str = "--port") -> None:
        """Raise `ConfigurationError` when nobody could listen here; `option` chooses another port."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            socket.create_server((self.host, self.port), family=family).close()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                problem = f"port {self.port} is in use; choose another with {option}"
            else:
                problem = f"cannot listen on {self.host}:{self.port}: {error.strerror or error}"
            raise ConfigurationError(problem) from error


def edge_address(deployment: Deployment) -> Address:
    return Address(deployment.edge.part.host, deployment.edge.part.port)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
