"""What processes are started with is what they themselves read."""

from __future__ import annotations

from pathlib import Path

import msgspec

from support.deployments import CATALOG, PREFILL, TWO_NODES, loaded
from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.deployment import Node, NodePart
from tenantry_runtime.deployment.configurations import catalog_file, edge_config, node_config
from tenantry_runtime.edge.config import (
    DriftConfig,
    EdgeConfig,
    EdgeNode,
    IncidentsConfig,
    read_config as read_edge_config,
)
from tenantry_runtime.engine.config import NodeConfig
from tenantry_runtime.pool.config import NodeProcessConfig, read_config as read_node_config
from tenantry_runtime.pool.liveness import Liveness

KIMI = "@cf/moonshotai/kimi-k2.6"
BOTH = CATALOG + PREFILL.replace('"kimi-k2.6:prefill"', '"kimi-k2.6:prefill", "kimi-k2.6:decode"')
FP8_DECODE = '[[pools]]\nmodel = "kimi-k2.6"\nphase = "decode"\ncache = "fp8"\n'


def node_read(folder: Path, node: Node) -> tuple[NodeProcessConfig, NodeConfig]:
    file = folder / "node.json"
    file.write_bytes(msgspec.json.encode(node_config(node)))
    config = read_node_config(file)
    return config, msgspec.json.decode(config.engine, type=NodeConfig)


def test_a_node_is_started_with_what_its_table_says(tmp_path: Path) -> None:
    settings = {
        "device": "cuda:1",
        "threads": 3,
        "weights": "dense",
        "handoff_bytes": 1000,
        "dtype": "bfloat16",
        "num_pages": 77,
        "chunk_tokens": 128,
        "max_batch": 9,
        "max_waiting": 8,
        "check_pages": False,
        "max_incidents": 7,
        "drills": True,
    }
    lines = "".join(
        f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in settings.items()
    )
    deployment = loaded(tmp_path, TWO_NODES + lines + 'cache = "fp8"\ndrain_s = 3\n')
    config, engine = node_read(tmp_path, deployment.nodes[1])
    assert (config.address, config.drain_s, config.tls) == ("127.0.0.1:7002", 3.0, None)
    assert {name: getattr(engine, name) for name in settings} == settings
    (model,) = engine.models
    assert (model.id, model.directory) == (KIMI, str(tmp_path / "models" / "kimi"))
    assert (model.phases, model.cache, model.prefill_cache) == (("decode",), "fp8", None)


def test_what_a_table_leaves_out_is_as_the_engine_has_it(tmp_path: Path) -> None:
    prefill = loaded(tmp_path, TWO_NODES).nodes[0]
    _, engine = node_read(tmp_path, prefill)
    assert engine == NodeConfig(models=engine.models)
    (model,) = engine.models
    assert (model.phases, engine.cache_of(model), model.prefill_cache) == (
        ("prefill",),
        "bf16",
        None,
    )


def test_phases_of_one_format_share_a_pool_of_pages(tmp_path: Path) -> None:
    _, engine = node_read(tmp_path, loaded(tmp_path, BOTH).nodes[0])
    (model,) = engine.models
    assert (model.phases, model.cache, model.prefill_cache) == (
        ("prefill", "decode"),
        "bf16",
        None,
    )


def test_phases_of_two_formats_on_one_node_keep_pages_apart(tmp_path: Path) -> None:
    _, engine = node_read(tmp_path, loaded(tmp_path, BOTH + FP8_DECODE).nodes[0])
    (model,) = engine.models
    assert (model.cache, model.prefill_cache) == ("fp8", "bf16")


def test_the_edge_reads_what_it_is_started_with(tmp_path: Path) -> None:
    text = (
        '[edge]\nhost = "::1"\nport = 9\nstate_dir = "store"\ngrace_s = 2.5\nshow_routing = true\n'
    )
    text += "[edge.limits]\nmax_requests = 3\n[edge.liveness]\nlost_after_s = 90.0\n"
    text += "[edge.incidents]\nkeep_days = 7\n"
    text += "[edge.drift]\nshare = 0.01\n"
    deployment = loaded(tmp_path, 'certificates = "c"\n' + text + TWO_NODES)
    catalog = tmp_path / "catalog.json"
    file = tmp_path / "edge.json"
    catalog.write_bytes(catalog_file(deployment))
    file.write_bytes(msgspec.json.encode(edge_config(deployment, catalog)))
    config = read_edge_config(file)

    assert isinstance(config, EdgeConfig)
    assert (config.host, config.port, config.grace_s) == ("::1", 9, 2.5)
    assert config.nodes == tuple(
        EdgeNode(address=f"127.0.0.1:{port}", tls=deployment.edge.tls) for port in (7001, 7002)
    )
    assert config.state_dir == str(tmp_path / "store")
    assert config.limits.max_requests == 3
    assert config.liveness == Liveness(lost_after_s=90)
    assert config.incidents == IncidentsConfig(keep_days=7)
    assert config.drift == DriftConfig(share=0.01, places=4)
    assert config.show_routing is True
    assert deployment.edge.tls is not None
    assert load_catalog(Path(str(config.catalog))).entries == deployment.catalog.entries


def test_certificates_go_by_the_names_of_parts(tmp_path: Path) -> None:
    deployment = loaded(tmp_path, 'certificates = "c"\n' + TWO_NODES)
    config, _ = node_read(tmp_path, deployment.nodes[1])
    assert config.tls is not None
    folder = tmp_path / "c"
    assert Path(config.tls.ca).parent == folder
    assert Path(config.tls.certificate).parent == Path(config.tls.key).parent == folder
    assert "decode" in Path(config.tls.certificate).name


def test_a_node_may_listen_elsewhere_than_it_is_called(tmp_path: Path) -> None:
    text = 'certificates = "c"\n' + TWO_NODES + 'listen = "[::]:7002"'
    deployment = loaded(
        tmp_path,
        text.replace("127.0.0.1:7001", "a:7001").replace("127.0.0.1:7002", "decode.internal:443"),
    )
    config, _ = node_read(tmp_path, deployment.nodes[1])
    assert (config.address, config.reached_at) == ("[::]:7002", "decode.internal:443")
    config, _ = node_read(tmp_path, deployment.nodes[0])
    assert (config.address, config.reached_at) == ("a:7001", "")


def test_the_edge_calls_a_socket_without_certificates(tmp_path: Path) -> None:
    text = TWO_NODES.replace("127.0.0.1:7001", "unix:p.sock")
    deployment = loaded(tmp_path, 'certificates = "c"\n' + text)
    assert edge_config(deployment, tmp_path).nodes == (
        EdgeNode(address=f"unix:{tmp_path}/p.sock"),
        EdgeNode(address="127.0.0.1:7002", tls=deployment.edge.tls),
    )


def test_every_setting_of_an_engine_can_be_said() -> None:
    said = {field.name for field in msgspec.structs.fields(NodePart)}
    assert {field.name for field in msgspec.structs.fields(NodeConfig)} - {"models"} <= said
