"""Every file of `samples/cluster` is a deployment, and comes to what its README says."""

from __future__ import annotations

import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from support.command_line import workerctl
from tenantry_runtime.deployment import Deployment, load_deployment
from tenantry_runtime.supervisor.parts import check_present, chosen_parts

FOLDER = Path(__file__).resolve().parents[3] / "samples" / "cluster"

ADDRESSES = {
    "cluster.toml": {"prefill": "10.0.0.1:7001", "decode": "10.0.0.2:7001"},
    "one-machine.toml": {"prefill": "127.0.0.1:7001", "decode": "127.0.0.1:7002"},
}

MODELS = ("@cf/moonshotai/kimi-k2.6", "@cf/zai-org/glm-5.2")


def test_there_is_no_other_file() -> None:
    assert {path.name for path in FOLDER.glob("*.toml")} == set(ADDRESSES)


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_sample_is_an_edge_a_prefill_and_a_decode_node(name: str) -> None:
    deployment = load_deployment(FOLDER / name)
    assert {node.name: str(node.address) for node in deployment.nodes} == ADDRESSES[name]
    assert [entry.id for entry in deployment.catalog.entries] == list(MODELS)
    pools = {(pool.model, pool.phase): pool.members for pool in deployment.pools}
    for model in MODELS:
        assert [member.cache for member in pools[model, "prefill"]] == ["bf16"]
        assert [member.cache for member in pools[model, "decode"]] == ["fp8"]
    assert deployment.state_dir == FOLDER / "state"
    assert deployment.edge.part.show_routing
    for tls in (deployment.edge.tls, *(node.tls for node in deployment.nodes)):
        assert tls is not None
        assert Path(tls.ca) == FOLDER / "certificates" / "ca.crt"


def test_of_two_machines_each_is_told_what_it_runs() -> None:
    cluster = load_deployment(FOLDER / "cluster.toml")
    assert [served(line, cluster) for line in commands("serve cluster.toml")] == [
        ("decode",),
        ("edge", "prefill"),
    ]


def test_on_one_machine_all_of_it_is_here() -> None:
    one_machine = load_deployment(FOLDER / "one-machine.toml")
    assert chosen_parts(one_machine) == ("edge", "prefill", "decode")


@pytest.mark.parametrize(
    ("name", "heading"), [("cluster.toml", "On two"), ("one-machine.toml", "On one machine")]
)
def test_the_readmes_certificates_are_all_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, heading: str
) -> None:
    shutil.copytree(FOLDER, tmp_path / "cluster")
    monkeypatch.chdir(tmp_path / "cluster")
    for arguments in commands("node certificate", heading):
        result = workerctl(*arguments, env={})
        assert result.exit_code == 0, result.stderr
    deployment = load_deployment(Path(name))
    check_present(deployment, deployment.part_names)


def commands(start: str, heading: str = "") -> list[list[str]]:
    """The arguments of the README's `workerctl` commands, below a heading."""
    text = (FOLDER / "README.md").read_text()
    if heading:
        text = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    return [
        shlex.split(line.removeprefix("workerctl "))
        for line in lines
        if line.startswith(f"workerctl {start}")
    ]


def served(arguments: list[str], deployment: Deployment) -> tuple[str, ...]:
    only = [value for flag, value in pairwise(arguments) if flag == "--only"]
    return chosen_parts(deployment, only)
