"""Workers of a real `workerctl dev`: deployed through its control plane, called as clients call them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from support.dev_server import LAST_LINE, DevServer, a_dev_server
from support.endless_model import a_catalog_of_an_endless_model

ACCOUNT = "dev"

IMPORTS = "from workers import Response, WorkerEntrypoint, fetch\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevWorkers:
    server: DevServer
    control: httpx.Client
    """At an account's part of the control plane, with a token."""

    def deploy(
        self, name: str, source: str, bindings: Sequence[dict[str, Any]] = (), **metadata: Any
    ) -> dict[str, Any]:
        """Upload a worker of one module, which answers from then on."""
        described = {
            "main_module": "entry.py",
            "bindings": list(bindings),
            "compatibility_date": "2026-09-10",
            "compatibility_flags": ["python_workers"],
            **metadata,
        }
        response = self.control.put(
            f"workers/scripts/{name}",
            files={
                "metadata": (None, json.dumps(described), "application/json"),
                "entry.py": ("entry.py", IMPORTS + source, "text/x-python"),
            },
        )
        assert response.status_code == 200, response.text
        self.ask("POST", f"workers/scripts/{name}/subdomain", {"enabled": True})
        result: dict[str, Any] = response.json()["result"]
        return result

    # Any: JSON
    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the result of a call of the control plane."""
        response = self.control.request(method, path, json=body)
        assert response.status_code == 200, response.text
        return response.json()["result"]

    def host(self, name: str) -> dict[str, str]:
        return {"host": f"{name}.{ACCOUNT}.localhost:{self.server.port}"}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @contextmanager
    def client(self, name: str) -> Iterator[httpx.Client]:
        with httpx.Client(base_url=self.url, headers=self.host(name), timeout=60) as client:
            yield client

    def get(self, name: str, path: str = "/", **options: Any) -> httpx.Response:
        with self.client(name) as client:
            return client.get(path, **options)

    def records(self, name: str) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = self.ask("GET", f"workers/scripts/{name}/logs")["records"]
        return records


@contextmanager
def dev_workers(folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[DevWorkers]:
    """Start a server with one model, whose answers end when they are told to."""
    catalog = a_catalog_of_an_endless_model(folder)
    with a_dev_server(folder, catalog=catalog, variables=variables) as server:
        server.wait_for_line(LAST_LINE)
        credentials = server.credentials
        with httpx.Client(
            base_url=f"{credentials.base_url}/accounts/{ACCOUNT}/",
            headers={"authorization": f"Bearer {credentials.api_token}"},
            timeout=60,
        ) as control:
            yield DevWorkers(server=server, control=control)
