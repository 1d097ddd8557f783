"""The table of workers, from an operator's text to what the edge is started with."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from support.deployments import TWO_NODES, a_file, loaded
from tenantry_runtime.deployment import DeploymentFile, load_deployment, to_toml
from tenantry_runtime.deployment.configurations import edge_config
from tenantry_runtime.edge.config import read_config
from tenantry_runtime.edge.workers_config import WorkersConfig, read_parts
from tenantry_runtime.errors import DeploymentError

FULL = """
[workers]
interpreter = "python/bin/python3.13"
floor = "full"
domain = "workers.example"
domains = { acme = ["shop.example"] }
cron = false

[workers.engine]
share_templates = false
max_isolates = 10
idle_memory_bytes = 1_000_000

[workers.limits]
max_body_bytes = 1000

[workers.logs]
max_age_s = 60

[workers.outbound]
allow = ["api.example.com"]
"""


def edge_read(folder: Path, text: str) -> WorkersConfig | None:
    config = edge_config(loaded(folder, text), folder / "catalog.json")
    (folder / "edge.json").write_bytes(msgspec.json.encode(config))
    return read_config(folder / "edge.json").workers


def test_without_the_table_there_are_no_workers(tmp_path: Path) -> None:
    assert edge_read(tmp_path, TWO_NODES) is None


def test_an_empty_table_runs_them_as_the_defaults_say(tmp_path: Path) -> None:
    workers = edge_read(tmp_path, TWO_NODES + "[workers]\n")
    assert workers == WorkersConfig()
    assert workers.floor == "user-namespace"


def test_what_the_table_says_reaches_the_edge_and_its_parts(tmp_path: Path) -> None:
    workers = edge_read(tmp_path, TWO_NODES + FULL)
    assert workers is not None
    assert workers.interpreter == str(tmp_path / "python" / "bin" / "python3.13")
    assert (workers.floor, workers.domain, workers.cron) == ("full", "workers.example", False)
    assert workers.domains == {"acme": ("shop.example",)}
    parts = read_parts(workers)
    assert (parts.engine.share_templates, parts.engine.max_isolates) == (False, 10)
    assert parts.limits.max_body_bytes == 1000
    assert parts.logs.max_age_s == 60.0
    assert parts.outbound.allow == ("api.example.com",)


def test_an_interpreter_without_a_slash_is_looked_for_on_the_path(tmp_path: Path) -> None:
    workers = edge_read(tmp_path, TWO_NODES + '[workers]\ninterpreter = "python3.13"\n')
    assert workers is not None
    assert workers.interpreter == "python3.13"


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("[workers]\nfloors = 1\n", "workers.floors: unknown key; did you mean floor?"),
        ('[workers]\nfloor = "low"\n', "workers.floor: must be"),
        (
            "[workers.engine]\nmax_isolate = 5\n",
            "workers.engine.max_isolate: unknown key; did you mean max_isolates?",
        ),
        ("[workers.limits]\nmax_requests = 0\n", "workers.limits.max_requests: must be an integer"),
        ('[workers.logs]\nfile_bytes = "1"\n', "workers.logs.file_bytes: must be an integer"),
        ("[workers.outbound]\nallows = []\n", "workers.outbound.allows: unknown key"),
        ("[workers.engine]\nmax_backoff_s = 0.1\n", "workers.engine: max_backoff_s is less than"),
    ],
)
def test_what_does_not_fit_is_told_by_key(tmp_path: Path, table: str, told: str) -> None:
    with pytest.raises(DeploymentError) as refused:
        load_deployment(a_file(tmp_path, TWO_NODES + table))
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "workers",
    [None, WorkersConfig(), WorkersConfig(is_optional=True, engine={"max_isolates": 3})],
)
def test_it_is_written_as_it_is_read(tmp_path: Path, workers: WorkersConfig | None) -> None:
    nodes = msgspec.toml.decode(TWO_NODES, type=DeploymentFile)
    file = msgspec.structs.replace(nodes, workers=workers)
    assert msgspec.toml.decode(to_toml(file), type=DeploymentFile) == file
