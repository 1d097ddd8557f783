"""Whatever a deployment's file says, it is a deployment or an error that names a key."""

from __future__ import annotations

import copy
import datetime
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, strategies as st

from tenantry_runtime.deployment.read import from_document
from tenantry_runtime.errors import DeploymentError

# a key of every kind that there is
DOCUMENT: dict[str, Any] = tomllib.loads("""
state_dir = "s"
certificates = "c"
[[catalog.models]]
id = "m"
aliases = ["n"]
directory = "d"
prices = { input = 1, output = 2.5 }
capabilities = ["reasoning"]
reasoning_effort = { supported_efforts = ["high"], default_effort = "high", normalizes_to = { low = "high" } }
[edge]
port = 9000
show_routing = true
grace_s = 1
limits = { max_requests = 5 }
tls = { ca = "a", certificate = "b", key = "c" }
[[nodes]]
name = "p"
address = "10.0.0.1:7001"
listen = "0.0.0.0:7001"
members = ["m:prefill"]
threads = 2
cache = "bf16"
directories = { n = "e" }
drain_s = 0.5
[[nodes]]
name = "d"
address = "10.0.0.2:7001"
members = ["n:decode"]
[[pools]]
model = "m"
phase = "decode"
nodes = ["d"]
cache = "fp8"
""")

VALUES = st.one_of(
    st.text(max_size=8),
    st.integers(-3, 100_000),
    st.floats(),
    st.booleans(),
    st.just(datetime.date(2026, 1, 1)),
    st.lists(st.sampled_from(["m:prefill", "d", 1]), max_size=2),
    st.dictionaries(st.sampled_from(["name", "m", "?"]), st.sampled_from(["x", 1, []]), max_size=2),
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for step, below in inner:
        yield (*path, step)
        if isinstance(below, dict | list):
            yield from places(below, (*path, step))


@given(st.sampled_from(list(places(DOCUMENT))), st.sampled_from(["set", "delete", "add"]), VALUES)
def test_a_change_anywhere_is_taken_or_refused_by_key(
    path: tuple[str | int, ...], change: str, value: object
) -> None:
    document = copy.deepcopy(DOCUMENT)
    *outer, last = path
    table: Any = document
    for step in outer:
        table = table[step]
    if change == "set":
        table[last] = value
    elif change == "delete":
        del table[last]
    elif isinstance(table, dict):
        table[f"{last}_"] = value

    try:
        from_document(document, Path("/etc/cluster.toml"))
    except DeploymentError as error:
        assert error.key
        assert str(error).startswith(f"/etc/cluster.toml: {error.key}: ")
        # not in the decoder's words
        assert not error.problem.startswith(("Expected", "Object", "Invalid"))


def test_the_document_is_a_deployment_as_it_is() -> None:
    assert from_document(DOCUMENT, Path("/etc/cluster.toml")).part_names == ("edge", "p", "d")
