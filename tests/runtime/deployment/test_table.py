"""The table of keys in the docstring has every key there is, with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT, UNSET

from tenantry_runtime.cache.budget import DEFAULT_MEMORY_FRACTION
from tenantry_runtime.deployment import file
from tenantry_runtime.deployment.file import (
    CatalogPart,
    DeploymentFile,
    EdgePart,
    NodePart,
    PoolPart,
    StorePart,
)
from tenantry_runtime.edge.workers_config import WorkersConfig
from tenantry_runtime.engine.config import (
    CPU_HANDOFF_BYTES,
    DEFAULT_CACHE_BYTES,
    GPU_HANDOFF_BYTES,
    NodeConfig,
)
from tenantry_runtime.pool.tls import TlsFiles

TABLES: dict[str, type[msgspec.Struct]] = {
    "": DeploymentFile,
    "store.": StorePart,
    "catalog.": CatalogPart,
    "edge.": EdgePart,
    "nodes.": NodePart,
    "pools.": PoolPart,
    "workers.": WorkersConfig,
    "tls.": TlsFiles,
}

ROWS = dict(re.findall(r"^\| \**([a-z_.]+)\** \| \**(.*?)\** ?\|.*\|$", file.__doc__ or "", re.M))


def fields() -> Iterator[tuple[str, Any]]:
    for prefix, struct in TABLES.items():
        for field in msgspec.structs.fields(struct):
            yield f"{prefix}{field.name}", field


def test_every_key_is_there_and_no_other() -> None:
    headings = {"store", "catalog", "edge", "nodes", "pools", "workers", "tls"}
    assert set(ROWS) - {"key"} == {name for name, _ in fields()} | headings


@pytest.mark.parametrize(("name", "field"), list(fields()), ids=[name for name, _ in fields()])
def test_a_default_is_as_stated(name: str, field: Any) -> None:
    stated = ROWS[name]
    default = field.default
    if default is UNSET:
        default = {each.name: each.default for each in msgspec.structs.fields(NodeConfig)}[
            field.name
        ]
    match default:
        case _ if default is NODEFAULT and field.required:
            assert stated == "required"
        case bool() | int() | float() | str():
            assert stated == msgspec.json.encode(default).decode()
        case _:
            # none, or what other keys make of it
            assert stated not in ("required", "true", "false")


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("nodes.cache_bytes", f"{DEFAULT_CACHE_BYTES >> 20} MiB on a CPU"),
        ("nodes.memory_fraction", f"{DEFAULT_MEMORY_FRACTION} of a GPU"),
        (
            "nodes.handoff_bytes",
            f"{CPU_HANDOFF_BYTES >> 20} MiB, {GPU_HANDOFF_BYTES >> 20} MiB on a GPU",
        ),
    ],
)
def test_a_default_by_the_device_is_as_stated(name: str, stated: str) -> None:
    assert ROWS[name] == stated
