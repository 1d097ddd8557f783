"""Which parts of a deployment are a machine's, and what must be there before they are started."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from support.deployments import TWO_NODES, loaded
from tenantry_runtime.deployment import Deployment
from tenantry_runtime.errors import ConfigurationError, DeploymentError
from tenantry_runtime.pool.config import NodeProcessConfig
from tenantry_runtime.supervisor.overview import overview
from tenantry_runtime.supervisor.parts import Modules, check_present, chosen_parts, write_parts
from tenantry_runtime.supervisor.state import claim

TWO_MACHINES = 'certificates = "tls"\n[edge]\nhost = "10.0.0.1"\n' + TWO_NODES.replace(
    "127.0.0.1:7001", "10.0.0.1:7001"
).replace("127.0.0.1:7002", "10.0.0.2:7001")


def with_files(folder: Path, *names: str) -> Deployment:
    """Two machines' deployment, and some of the files that it names."""
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return loaded(folder, TWO_MACHINES)


def test_what_is_at_loopback_addresses_is_here(tmp_path: Path) -> None:
    assert chosen_parts(loaded(tmp_path, TWO_NODES)) == ("edge", "prefill", "decode")


def test_names_choose_parts_in_the_deployments_order(tmp_path: Path) -> None:
    deployment = loaded(tmp_path, TWO_MACHINES)
    assert chosen_parts(deployment, ["decode", "edge", "decode"]) == ("edge", "decode")


def test_where_nothing_is_local_a_choice_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        chosen_parts(loaded(tmp_path, TWO_MACHINES))
    assert "choose of: --only edge --only prefill --only decode" in str(caught.value)


def test_a_part_needs_its_own_certificate_alone(tmp_path: Path) -> None:
    deployment = with_files(tmp_path, "tls/ca.crt", "tls/decode.crt", "tls/decode.key")
    (tmp_path / "models" / "kimi").mkdir(parents=True)
    check_present(deployment, ["decode"])
    with pytest.raises(DeploymentError) as caught:
        check_present(deployment, ["prefill"])
    assert caught.value.key == "nodes[0].tls"
    advice = f"workerctl node certificate prefill --ca {tmp_path / 'tls'} --host HOST"
    assert advice in str(caught.value)


def test_a_part_needs_its_models_checkpoint(tmp_path: Path) -> None:
    deployment = loaded(tmp_path, TWO_NODES)
    for name, key in (("decode", "nodes[1].members[0]"), ("edge", "catalog")):
        with pytest.raises(DeploymentError) as caught:
            check_present(deployment, [name])
        assert caught.value.key == key
        assert f"the checkpoint {tmp_path / 'models' / 'kimi'}" in str(caught.value)


def test_configurations_are_written_for_the_parts_that_run_here(tmp_path: Path) -> None:
    text = TWO_NODES.replace("127.0.0.1:7002", "unix:sockets/d.sock")
    deployment = loaded(tmp_path, text + "drain_s = 20\n")
    with claim(tmp_path / "state", ["decode"]) as state:
        (part,) = write_parts(deployment, ["decode"], state, Modules())
        assert sorted(os.listdir(state.run)) == ["decode.json", "decode.lock"]
    config = msgspec.json.decode(part.config.read_bytes(), type=NodeProcessConfig)
    assert config.address == f"unix:{tmp_path}/sockets/d.sock"
    assert (tmp_path / "sockets").is_dir()
    assert (part.name, part.module) == ("decode", "tenantry_runtime.pool")
    # what it gives its answers, and a little for itself
    assert 20 < part.grace_s < 22


def test_an_overview_says_what_is_where(tmp_path: Path) -> None:
    deployment = loaded(tmp_path, TWO_MACHINES + 'cache = "fp8"')
    assert overview(deployment, ["edge", "prefill"]) == (
        "  edge     http://10.0.0.1:8787\n"
        "  prefill  10.0.0.1:7001 (TLS)   prefill bf16: kimi-k2.6\n"
        "  decode   10.0.0.2:7001 (TLS)   decode fp8: kimi-k2.6    elsewhere\n"
    )
