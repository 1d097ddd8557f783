"""Records of invocations: which are wanted, and how they come, live.

| option | filter |
|---|---|
| --status | `{"outcome": […]}`: `error` is every outcome but `ok` and `canceled` |
| --method | `{"method": […]}` |
| --header | `{"header": {"key", "query"}}` |
| --ip | `{"client_ip": […]}` |
| --search | `{"query"}` |
| --sampling-rate | `{"sampling_rate"}` |
| --version-id | `{"scriptVersion"}` |
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import click
import msgspec

from .api import ControlPlane, Refused, Unreachable
from .history import explained
from .record_lines import OUTCOMES

SUBPROTOCOL = "trace-v1"
POLL_S = 0.2
ERRORS = [*(each for each in OUTCOMES if each not in ("ok", "canceled")), "unknown"]
_OUTCOMES = {"ok": ["ok"], "canceled": ["canceled"], "error": ERRORS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which records are shown."""

    statuses: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    header: str | None = None
    ips: tuple[str, ...] = ()
    search: str | None = None
    sampling_rate: float | None = None
    version_id: str | None = None

    # Any: JSON
    def filters(self) -> list[dict[str, Any]]:
        """Return them as a tail takes them."""
        found: list[dict[str, Any]] = []
        if self.sampling_rate is not None:
            found.append({"sampling_rate": self.sampling_rate})
        if self.statuses:
            found.append({"outcome": [word for each in self.statuses for word in _OUTCOMES[each]]})
        if self.methods:
            found.append({"method": [each.upper() for each in self.methods]})
        if self.header is not None:
            name, colon, query = self.header.partition(":")
            header = {"key": name.strip(), **({"query": query.strip()} if colon else {})}
            found.append({"header": header})
        if self.ips:
            found.append({"client_ip": list(self.ips)})
        if self.search is not None:
            found.append({"query": self.search})
        if self.version_id is not None:
            found.append({"scriptVersion": self.version_id})
        return found


class _Tail(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    url: str


@contextmanager
def tail(
    plane: ControlPlane, worker: str, wanted: Wanted, *, is_over: Callable[[], bool] | None = None
) -> Generator[Iterator[dict[str, Any]], None, None]:
    """Open a tail, and close it at the end. What it yields are records, until `is_over` says so."""
    from websockets.exceptions import InvalidHandshake, InvalidURI
    from websockets.sync.client import connect
    from websockets.typing import Subprotocol

    path = f"/workers/scripts/{quote(worker, safe='')}/tails"
    try:
        opened = plane.send("POST", path, _Tail, json={"filters": wanted.filters()})
    except Refused as refusal:
        raise explained(refusal, worker) from refusal
    try:
        with connect(
            opened.url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            user_agent_header="workerctl",
            max_size=16 << 20,
        ) as socket:
            socket.send('{"debug":false}')
            yield _records(socket, is_over)
    except (InvalidHandshake, InvalidURI, OSError) as error:
        raise click.ClickException(f"the tail at {opened.url} cannot be had: {error}") from error
    finally:
        close_tail(plane, f"{path}/{quote(opened.id, safe='')}")


def close_tail(plane: ControlPlane, path: str) -> None:
    """Close a tail; one that is gone by itself, or with its server, is as good."""
    try:
        plane.order("DELETE", path)
    except (Refused, Unreachable):
        pass


# Any: a websocket that yields messages, whose class is imported only by those who tail
def _records(socket: Any, is_over: Callable[[], bool] | None) -> Iterator[dict[str, Any]]:
    from websockets.exceptions import ConnectionClosed

    while is_over is None or not is_over():
        try:
            message = socket.recv(timeout=None if is_over is None else POLL_S)
        except TimeoutError:
            continue
        except ConnectionClosed as error:
            raise click.ClickException(
                f"the tail has ended: {error}. Run it again to go on; `workerctl logs` has what was "
                "missed"
            ) from error
        yield msgspec.json.decode(message, type=dict[str, Any])
