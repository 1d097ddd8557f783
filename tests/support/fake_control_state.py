"""What a control plane of tests keeps, and what it was asked."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

ACCOUNT, TOKEN = "acme", "token-of-acme"


@dataclass(frozen=True)
class Part:
    """A part of an upload."""

    content_type: str
    content: bytes


@dataclass(frozen=True)
class Call:
    """A request, as it came."""

    method: str
    path: str
    """Below the account's."""
    query: dict[str, str]
    body: bytes
    headers: dict[str, str]
    parts: dict[str, Part]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def metadata(self) -> dict[str, Any]:
        described: dict[str, Any] = json.loads(self.parts["metadata"].content)
        return described

    @property
    def files(self) -> dict[str, bytes]:
        return {name: part.content for name, part in self.parts.items() if name != "metadata"}


@dataclass
class Worker:
    """What is kept of a worker."""

    versions: list[dict[str, Any]] = field(default_factory=list)
    deployments: list[dict[str, Any]] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    crons: list[str] = field(default_factory=list)
    routes: list[dict[str, Any]] = field(default_factory=list)
    has_url: bool = False
    kept_logs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def live(self) -> list[tuple[str, float]]:
        return [
            (each["version_id"], each["percentage"]) for each in self.deployments[0]["versions"]
        ]


@dataclass
class Namespace:
    """What is kept of a KV namespace."""

    title: str
    values: dict[str, bytes] = field(default_factory=dict)
    details: dict[str, dict[str, Any]] = field(default_factory=dict)


class Problem(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status, self.code, self.message = status, code, message
        super().__init__(message)


class ControlPlaneFake:
    """Keeps workers and namespaces, and what it was asked."""

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.models: list[dict[str, Any]] = []
        """On offer."""
        self.messages: list[str] = []
        """Said with every answer."""
        self.calls: list[Call] = []
        self.refusals: dict[tuple[str, str], Problem] = {}
        """By method and path: answered instead."""
        self.records: list[dict[str, Any]] = []
        """What every tail tells, before it ends."""
        self.tail_filters: list[Any] = []
        self.closed_tails: list[str] = []
        self.tail_ends = threading.Event()
        self.port = 0
        self.tail_port = 0
        self.changed = threading.Condition()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/client/v4"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "TENANTRY_BASE_URL": self.base_url,
            "TENANTRY_ACCOUNT_ID": ACCOUNT,
            "TENANTRY_API_TOKEN": TOKEN,
        }

    def uploads(self) -> list[Call]:
        """Return the calls that carried a worker's files."""
        return [call for call in self.calls if "metadata" in call.parts and call.files]

    def worker(self, name: str) -> Worker:
        if name not in self.workers:
            raise Problem(404, 10007, "This Worker does not exist on your account.")
        return self.workers[name]

    def namespace(self, id: str) -> Namespace:
        if id not in self.namespaces:
            raise Problem(404, 10013, "namespace not found")
        return self.namespaces[id]


@dataclass(frozen=True)
class Raw:
    """An answer that is no envelope."""

    content: bytes


@dataclass(frozen=True)
class Paged:
    """A result with what tells of its pages."""

    result: Any
    info: dict[str, Any]
