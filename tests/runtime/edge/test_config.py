from __future__ import annotations

from pathlib import Path

import pytest

from tenantry_runtime.edge.config import EdgeConfig, EdgeNode, read_config
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.pool.tls import TlsFiles

LEAST = '{"nodes": ["unix:node.sock"], "state_dir": "state"}'


def read(folder: Path, text: str) -> EdgeConfig:
    (folder / "edge.json").write_text(text)
    return read_config(folder / "edge.json")


def test_the_least_configuration_listens_on_loopback_alone(tmp_path: Path) -> None:
    config = read(tmp_path, LEAST)

    assert (config.host, config.port) == ("127.0.0.1", 8787)
    assert config.limits.max_body_bytes == 10_000_000
    assert config.limits.keep_alive_s == 15


def test_paths_start_at_the_file(tmp_path: Path) -> None:
    config = read(
        tmp_path, '{"nodes": ["unix:n"], "state_dir": "state", "catalog": "/srv/catalog.json"}'
    )

    assert config.state_dir == str(tmp_path / "state")
    assert config.catalog == "/srv/catalog.json"


def test_a_node_on_another_machine_is_reached_with_certificates(tmp_path: Path) -> None:
    tls = '{"ca": "ca.pem", "certificate": "/etc/edge.pem", "key": "edge.key"}'
    config = read(
        tmp_path,
        f'{{"nodes": ["unix:n", {{"address": "10.0.0.2:7000", "tls": {tls}}}], "state_dir": "s"}}',
    )

    here, there = config.nodes
    assert here == EdgeNode(address="unix:n")
    assert isinstance(there, EdgeNode)
    assert there.address == "10.0.0.2:7000"
    assert there.tls == TlsFiles(
        ca=str(tmp_path / "ca.pem"),
        certificate="/etc/edge.pem",
        key=str(tmp_path / "edge.key"),
    )


def test_how_long_silence_is_borne_is_configurable(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        '{"nodes": ["unix:n"], "state_dir": "s", "liveness": {"stale_after_s": 1.5}}',
    )

    assert (config.liveness.stale_after_s, config.liveness.lost_after_s) == (1.5, 60.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "truncated"),
        ('{"nodes": [], "state_dir": "s"}', r"\$\.nodes"),
        ('{"nodes": ["unix:x"]}', "state_dir"),
        ('{"nodes": ["unix:x"], "state_dir": "s", "prot": 1}', "prot"),
        ('{"nodes": ["unix:x"], "state_dir": "s", "port": 70000}', r"\$\.port"),
        ('{"nodes": ["unix:x"], "state_dir": "s", "limits": {"keep_alive_s": 0}}', "keep_alive_s"),
        ('{"nodes": ["unix:x"], "state_dir": "s", "liveness": {"stale_s": 9}}', "stale_s"),
        ('{"nodes": ["unix:x"], "state_dir": "s", "liveness": {"ask_every_s": 0}}', "ask_every_s"),
        ('{"nodes": ["unix:x"], "state_dir": "s", "store": "db"}', "store must be postgresql://"),
        ('{"nodes": ["unix:x", {"address": "unix:x"}], "state_dir": "s"}', "unix:x"),
    ],
    ids=[
        *("no json", "no node", "no state", "unknown field", "bad port", "bad limit"),
        *("unknown wait", "bad wait", "no store", "a node twice"),
    ],
)
def test_a_bad_configuration_is_refused_with_file_and_field(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"edge\.json: .*{problem}"):
        read(tmp_path, text)


def test_a_missing_file_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.json"):
        read_config(tmp_path / "nowhere.json")
