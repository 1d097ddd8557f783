"""What a deployment's file comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.deployments import CATALOG, DECODE, PREFILL, TWO_NODES, loaded
from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.deployment import Deployment
from tenantry_runtime.deployment.node_address import TcpAddress

KIMI = "@cf/moonshotai/kimi-k2.6"
GLM = "@cf/zai-org/glm-5.2"

BUILT_IN = """
[[nodes]]
name = "n"
address = "unix:n.sock"
members = ["kimi-k2.6:prefill", "kimi-k2.6:decode", "glm-5.2:prefill", "glm-5.2:decode"]
"""


def pools(deployment: Deployment) -> dict[str, list[str]]:
    """The members of each pool, by node."""
    return {
        f"{pool.model}:{pool.phase}": [
            node.name
            for node in deployment.nodes
            if any(member in node.members for member in pool.members)
        ]
        for pool in deployment.pools
    }


def test_relative_paths_start_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    text = 'state_dir = "../state"\n' + TWO_NODES.replace("127.0.0.1:7001", "unix:run/p.sock")
    text += '[nodes.tls]\nca = "tls/ca.pem"\ncertificate = "/etc/d.pem"\nkey = "d.key"\n'
    # only TCP nodes speak TLS, but a node without files could not call one that does
    text = text.replace('[[nodes]]\nname = "decode"', _tls("p") + '[[nodes]]\nname = "decode"')
    text += '[edge.tls]\nca = "ca.pem"\ncertificate = "e.pem"\nkey = "e.key"\n'
    monkeypatch.chdir(tmp_path)
    deployment = loaded(folder, text)

    assert deployment.state_dir == deployment.edge.state_dir == tmp_path / "state"
    prefill, decode = deployment.nodes
    assert str(prefill.address) == f"unix:{folder}/run/p.sock"
    assert prefill.members[0].directory == folder / "models" / "kimi"
    assert decode.tls is not None
    assert decode.tls.ca == str(folder / "tls" / "ca.pem")
    assert decode.tls.certificate == "/etc/d.pem"
    assert deployment.edge.tls is not None
    assert deployment.edge.tls.key == str(folder / "e.key")


def _tls(name: str) -> str:
    return f'[nodes.tls]\nca = "ca.pem"\ncertificate = "{name}.pem"\nkey = "{name}.key"\n'


def test_a_file_named_by_a_relative_path_is_where_paths_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    deployment = loaded(Path(), TWO_NODES)
    assert deployment.nodes[0].members[0].directory == tmp_path / "models" / "kimi"


def test_without_a_catalog_the_built_in_models_are_offered(tmp_path: Path) -> None:
    deployment = loaded(tmp_path, BUILT_IN)
    assert deployment.catalog.entries == load_catalog().entries
    assert pools(deployment) == {
        f"{KIMI}:prefill": ["n"],
        f"{KIMI}:decode": ["n"],
        f"{GLM}:prefill": ["n"],
        f"{GLM}:decode": ["n"],
    }


def test_an_offer_leaves_the_other_models_out(tmp_path: Path) -> None:
    text = BUILT_IN.replace(', "glm-5.2:prefill", "glm-5.2:decode"', "")
    deployment = loaded(tmp_path, '[catalog]\noffer = ["kimi-k2.6"]\n' + text)
    assert [entry.id for entry in deployment.catalog.entries] == [KIMI]


def test_a_catalogs_file_is_found_beside_the_deployment(tmp_path: Path) -> None:
    (tmp_path / "models.json").write_text('{"models": [{"id": "m", "directory": "checkpoint"}]}')
    deployment = loaded(
        tmp_path,
        '[catalog]\nfile = "models.json"\n'
        + PREFILL.replace("kimi-k2.6", "m")
        + DECODE.replace("kimi-k2.6", "m"),
    )
    assert deployment.nodes[0].members[0].directory == tmp_path / "checkpoint"


def test_pools_are_all_members_of_a_model_in_a_phase(tmp_path: Path) -> None:
    more = DECODE.replace('"decode"', '"decode-2"').replace("7002", "7003")
    assert pools(loaded(tmp_path, TWO_NODES + more)) == {
        f"{KIMI}:prefill": ["prefill"],
        f"{KIMI}:decode": ["decode", "decode-2"],
    }


def test_a_pool_may_leave_a_nodes_member_out(tmp_path: Path) -> None:
    both = PREFILL.replace('"kimi-k2.6:prefill"', '"kimi-k2.6:prefill", "kimi-k2.6:decode"')
    text = CATALOG + both + DECODE
    text += '[[pools]]\nmodel = "kimi-k2.6"\nphase = "decode"\nnodes = ["decode"]\n'
    assert pools(loaded(tmp_path, text)) == {
        f"{KIMI}:prefill": ["prefill"],
        f"{KIMI}:decode": ["decode"],
    }


def test_formats_follow_the_phase(tmp_path: Path) -> None:
    text = TWO_NODES + f'[[pools]]\nmodel = "{KIMI}"\nphase = "decode"\n'
    prefill, decode = loaded(tmp_path, text + 'cache = "fp8"\ndirectory = "models/int4"').nodes
    assert prefill.members[0].cache == "bf16"
    assert prefill.members[0].directory == tmp_path / "models" / "kimi"
    assert decode.members[0].cache == "fp8"
    assert decode.members[0].directory == tmp_path / "models" / "int4"


def test_a_node_may_have_a_checkpoint_elsewhere(tmp_path: Path) -> None:
    text = TWO_NODES + '[nodes.directories]\n"kimi-k2.6" = "/mnt/kimi"\n'
    prefill, decode = loaded(tmp_path, text).nodes
    assert prefill.members[0].directory == tmp_path / "models" / "kimi"
    assert decode.members[0].directory == Path("/mnt/kimi")


def test_parts_are_local_where_nobody_else_reaches_them(tmp_path: Path) -> None:
    text = 'certificates = "c"\n[edge]\nhost = "0.0.0.0"\n' + TWO_NODES
    deployment = loaded(
        tmp_path, text.replace("127.0.0.1:7001", "[::1]:7001").replace("127.0.0.1:7002", "b:7002")
    )
    prefill, decode = deployment.nodes
    assert prefill.is_local
    assert prefill.address == TcpAddress("::1", 7001)
    assert str(prefill.address) == "[::1]:7001"
    assert not decode.is_local
    assert not deployment.edge.is_local
