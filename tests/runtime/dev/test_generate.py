"""The deployment that `workerctl dev` generates, as it is read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from tenantry_runtime.cache.budget import DEFAULT_MEMORY_FRACTION
from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.deployment import Deployment, load_deployment, to_toml
from tenantry_runtime.deployment.configurations import edge_config, node_config
from tenantry_runtime.dev.generate import COMMENT, one_machine
from tenantry_runtime.edge.workers_config import WorkersConfig
from tenantry_runtime.engine.config import NodeConfig
from tenantry_runtime.supervisor.address import Address
from tenantry_runtime.supervisor.state import claim

KIMI = "@cf/moonshotai/kimi-k2.6"
GLM = "@cf/zai-org/glm-5.2"


def generated(
    folder: Path,
    *,
    cache: Literal["bf16", "fp8"] = "bf16",
    device: str = "cpu",
    has_pools: bool = False,
    catalog: Path | None = None,
    store: str | None = None,
    workers: WorkersConfig | None = None,
) -> Deployment:
    with claim(folder / "state") as state:
        file = one_machine(
            catalog=load_catalog(catalog),
            catalog_file=catalog,
            address=Address("0.0.0.0", 9000),
            state_dir=state.path,
            store=store,
            cache=cache,
            device=device,
            has_pools=has_pools,
            workers=workers,
            socket=state.socket,
        )
        path = state.run / "deployment.toml"
        path.write_text(to_toml(file, comment=COMMENT))
        return load_deployment(path)


def engine(deployment: Deployment, place: int) -> NodeConfig:
    return msgspec.json.decode(node_config(deployment.nodes[place]).engine, type=NodeConfig)


def test_one_node_runs_both_phases_of_every_model_in_one_pool_each(tmp_path: Path) -> None:
    deployment = generated(tmp_path)
    (node,) = deployment.nodes
    assert str(node.address) == f"unix:{tmp_path}/state/run/node.sock"
    config = engine(deployment, 0)
    assert [model.id for model in config.models] == [KIMI, GLM]
    for model in config.models:
        assert config.pools_of(model) == (("prefill", "decode"),)
        assert Path(model.directory).is_dir()
    assert deployment.state_dir == deployment.edge.state_dir == tmp_path / "state"
    assert (deployment.edge.part.host, deployment.edge.part.port) == ("0.0.0.0", 9000)
    # all of it stays as it was before there were deployments
    own = {field.name for field in msgspec.structs.fields(NodeConfig)} - {"models"}
    plain = NodeConfig(models=config.models)
    assert {name: getattr(config, name) for name in own} == {
        name: getattr(plain, name) for name in own
    }


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_pools_are_a_prefill_node_in_bf16_and_a_decode_node_in_the_format_asked_for(
    tmp_path: Path, cache: Literal["bf16", "fp8"]
) -> None:
    deployment = generated(tmp_path, cache=cache, has_pools=True)
    assert [node.name for node in deployment.nodes] == ["prefill", "decode"]
    for place, (phase, kept) in enumerate({"prefill": "bf16", "decode": cache}.items()):
        config = engine(deployment, place)
        assert [model.id for model in config.models] == [KIMI, GLM]
        assert {model.phases for model in config.models} == {(phase,)}
        assert {model.cache for model in config.models} == {kept}


def test_two_nodes_share_a_gpu(tmp_path: Path) -> None:
    alone = engine(generated(tmp_path / "one", device="cuda:1"), 0)
    assert (alone.device, alone.filled_fraction) == ("cuda:1", DEFAULT_MEMORY_FRACTION)

    deployment = generated(tmp_path / "two", device="cuda", has_pools=True)
    halves = [engine(deployment, place) for place in range(2)]
    assert [each.device for each in halves] == ["cuda", "cuda"]
    assert [each.filled_fraction for each in halves] == [DEFAULT_MEMORY_FRACTION / 2] * 2

    on_cpu = generated(tmp_path / "cpu", has_pools=True)
    assert [engine(on_cpu, place).filled_fraction for place in range(2)] == [None, None]


def test_the_store_is_the_one_that_is_named(tmp_path: Path) -> None:
    url = "postgresql://tenantry@/tenantry?host=/run/postgresql"
    catalog = tmp_path / "catalog.json"

    assert generated(tmp_path).edge.store is None
    assert edge_config(generated(tmp_path, store=url), catalog).store == url


def test_answers_do_not_delay_ctrl_c(tmp_path: Path) -> None:
    for has_pools in (False, True):
        for node in generated(tmp_path, has_pools=has_pools).nodes:
            assert node_config(node).drain_s == 0


def test_a_catalog_of_ones_own_is_found_from_the_state_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.json").write_text(
        json.dumps({"models": [{"id": "m", "directory": "checkpoint"}]})
    )
    monkeypatch.chdir(tmp_path)
    deployment = generated(tmp_path, catalog=Path("mine.json"))
    assert engine(deployment, 0).models[0].directory == str(tmp_path / "checkpoint")


def test_a_long_state_directory_has_its_sockets_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    for node in generated(folder, has_pools=True).nodes:
        assert len(str(node.address).encode()) < 107


def test_workers_run_as_the_command_line_says(tmp_path: Path) -> None:
    workers = WorkersConfig(is_optional=True, unsafe_no_sandbox=True, test_scheduled=True)
    deployment = generated(tmp_path, workers=workers)
    assert edge_config(deployment, tmp_path / "catalog.json").workers == workers
