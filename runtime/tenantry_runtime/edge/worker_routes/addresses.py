"""Which worker a URL names. Pure: who is behind a name is the directory's knowledge.

| URL | worker | what it sees |
|---|---|---|
| `http://WORKER.ACCOUNT.DOMAIN[:PORT]/PATH` | by the host; DOMAIN is `localhost` unless set | the URL as it is |
| `http://ANY/workers/ACCOUNT/WORKER/PATH` | by the path | `http://ANY/PATH`, and in `x-forwarded-prefix` what is gone |
| whatever a configured route matches | by the route | the URL as it is |

The first is an origin of its own in browsers. The second is not: every worker of the edge, and the edge's
own pages, are one origin there. So no cookie comes or goes by it, and what a browser shows of it is put
into a sandbox of its own (`response.SANDBOX`), where a page's scripts reach nothing that is not public. It
is for programs, and for pages that call nobody. ANY is no host that is an account's, for routes or workers.

Below a domain of your own, workers of all tenants can set cookies for that whole domain, unless it is on
the Public Suffix List.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

PATH_PREFIX = b"/workers/"
# as in `workers.spec`, where a name in a host may not have an underscore but some clients send it
_NAME = re.compile(r"[a-z0-9_][a-z0-9-_]{0,62}")
_ACCOUNT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Address(NamedTuple):
    """A worker, and where in it."""

    account: str
    worker: str
    path: bytes
    """Raw, as it was sent, without the query."""
    prefix: str = ""
    """What was taken off the path."""
    is_route: bool = False
    """Whether a configured route led there."""

    @property
    def has_shared_origin(self) -> bool:
        """Whether browsers cannot tell it from other workers, and from the edge's own pages."""
        return bool(self.prefix)


class WorkerUrls:
    """What the URLs of workers look like here."""

    def __init__(self, domain: str = "localhost", routed: Iterable[str] = ()) -> None:
        """`domain` is below which accounts and workers are names; `routed` are those of routes."""
        self._suffix = f".{domain.lower()}"
        self._routed = frozenset(name.lower() for name in routed)

    def of_host(self, host: str, path: bytes) -> Address | None:
        """Return the worker that a host, as `authority.Authority` has it, names; None if it is no such."""
        if not host.endswith(self._suffix):
            return None
        labels = host[: -len(self._suffix)].split(".")
        if len(labels) != 2:
            return None
        worker, account = labels
        return Address(account, worker, path)

    def may_be_routed(self, host: str) -> bool:
        """Say whether a host, without its port, could be that of a route."""
        return host.endswith(self._suffix) or self.is_tenants(host)

    def is_tenants(self, host: str) -> bool:
        """Say whether a host is for the workers of one account alone.

        There, nobody else's worker answers by its path: it would speak in that account's name.
        """
        # every account has routes at ACCOUNT.localhost, whatever the domain of workers is
        if host.endswith(".localhost"):
            return True
        labels = host.split(".")
        return any(".".join(labels[start:]) in self._routed for start in range(len(labels)))

    @staticmethod
    def of_path(path: bytes) -> Address | None:
        """Return the worker that a raw path names; None if it is no such path."""
        if not path.startswith(PATH_PREFIX):
            return None
        account, _, rest = path[len(PATH_PREFIX) :].decode("latin-1").partition("/")
        worker, slash, rest = rest.partition("/")
        if not is_possible(account, worker):
            return None
        prefix = f"/workers/{account}/{worker}"
        return Address(account, worker, (slash + rest).encode("latin-1") or b"/", prefix)


def is_possible(account: str, worker: str) -> bool:
    """Say whether an account and a worker could have these names."""
    return _ACCOUNT.fullmatch(account) is not None and _NAME.fullmatch(worker) is not None
