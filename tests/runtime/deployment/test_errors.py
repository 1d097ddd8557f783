"""What is wrong with a deployment's file is told by file and key, with what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.deployments import CATALOG, DECODE, PREFILL, TWO_NODES, a_file
from tenantry_runtime.deployment import load_deployment
from tenantry_runtime.errors import DeploymentError

BOTH = PREFILL.replace('"kimi-k2.6:prefill"', '"kimi-k2.6:prefill", "kimi-k2.6:decode"')
ABROAD = "10.0.0.2:7002"
CERTIFICATES = 'certificates = "certificates"\n'
POOL = '[[pools]]\nmodel = "kimi-k2.6"\nphase = "decode"\n'
KIMI = "@cf/moonshotai/kimi-k2.6"

BROKEN = {
    # of the form
    "an unknown key": (
        TWO_NODES + "thread = 2",
        "nodes[1].thread: unknown key; did you mean threads?",
    ),
    "an unknown table": (
        "[edges]\n" + TWO_NODES,
        "edges: unknown key; did you mean edge?",
    ),
    "an unknown key that resembles none": (
        TWO_NODES + POOL + "x = 1",
        "pools[0].x: unknown key; known here: model, phase, nodes, cache, directory",
    ),
    "an unknown key of a limit": (
        "[edge.limits]\nmax_request = 5\n" + TWO_NODES,
        "edge.limits.max_request: unknown key; did you mean max_requests?",
    ),
    "an unknown key of a model": (
        CATALOG + 'alias = ["k"]\n' + BOTH,
        "catalog.models[0].alias: unknown key; did you mean aliases?",
    ),
    "a number in quotes": (
        TWO_NODES + 'threads = "2"',
        'nodes[1].threads: must be an integer, not "2"',
    ),
    "a fraction of a thread": (
        TWO_NODES + "threads = 0.5",
        "nodes[1].threads: must be an integer, not 0.5",
    ),
    "no thread": (
        TWO_NODES + "threads = 0",
        "nodes[1].threads: must be an integer >= 1, not 0",
    ),
    "a port that is none": (
        "[edge]\nport = 65536\n" + TWO_NODES,
        "edge.port: must be an integer <= 65535, not 65536",
    ),
    "a format that is none": (
        TWO_NODES + 'cache = "fp4"',
        'nodes[1].cache: must be "bf16" or "float32" or "fp8", not "fp4"',
    ),
    "a string where a list belongs": (
        TWO_NODES + POOL + 'nodes = "decode"',
        'pools[0].nodes: must be a list, not "decode"',
    ),
    "one table where a list of them belongs": (
        CATALOG + PREFILL.replace("[[nodes]]", "[nodes]"),
        "nodes: must be a list, not a table",
    ),
    "a directory that is a number": (
        TWO_NODES + '[nodes.directories]\n"kimi-k2.6" = 1',
        "nodes[1].directories: must be a table of strings, but holds 1",
    ),
    "a store that is no PostgreSQL": (
        '[store]\nurl = "mysql://tenantry:s3cret@db/tenantry"\n' + TWO_NODES,
        "store.url: must be postgresql://USER@HOST/DATABASE",
    ),
    "a store without a database": (
        '[store]\nurl = "postgresql://tenantry:s3cret@db"\n' + TWO_NODES,
        "store.url: names no database after the host: postgresql://USER@HOST/DATABASE",
    ),
    "a store's URL where its table belongs": (
        'store = "postgresql://tenantry:s3cret@db/tenantry"\n' + TWO_NODES,
        "store: must be a table, not a URL",
    ),
    "no nodes": (CATALOG, "nodes: is missing, and has no default"),
    "an empty list of nodes": (
        "nodes = []\n" + CATALOG,
        "nodes: must not be empty",
    ),
    "a node without a name": (
        TWO_NODES.replace('name = "decode"', ""),
        "nodes[1].name: is missing, and has no default",
    ),
    "no TOML": (
        CATALOG + "threads 2",
        "is no TOML: Expected '=' after a key in a key/value pair (at line 6, column 9)",
    ),
    # of names and addresses
    "a name that is no file's": (
        TWO_NODES.replace('"decode"', '"de/code"'),
        "nodes[1].name: 'de/code' names files too: it must be 1 to 63 letters, digits, - and _",
    ),
    "the edge's name": (
        TWO_NODES.replace('"decode"', '"edge"'),
        "nodes[1].name: 'edge' is the HTTP process; choose another",
    ),
    "the authority's name": (
        TWO_NODES.replace('"decode"', '"ca"'),
        "nodes[1].name: 'ca' is the authority among the certificates; choose another",
    ),
    "two nodes of one name": (
        TWO_NODES.replace('"decode"', '"prefill"'),
        "nodes[1].name: 'prefill' is the name of nodes[0]; choose another",
    ),
    "two nodes at one address": (
        TWO_NODES.replace("7002", "7001"),
        "nodes[1].address: 127.0.0.1:7001 is the address of nodes[0]; choose another",
    ),
    "two nodes at one socket": (
        TWO_NODES.replace("127.0.0.1:7001", "unix:a/../x").replace("127.0.0.1:7002", "unix:x"),
        "nodes[1].address: unix:{folder}/x is the address of nodes[0]; choose another",
    ),
    "an address without a port": (
        TWO_NODES.replace("127.0.0.1:7002", "decode"),
        'nodes[1].address: \'decode\' must be "HOST:PORT" or "unix:PATH"',
    ),
    "an address of all interfaces": (
        TWO_NODES.replace("127.0.0.1:7002", "0.0.0.0:7002"),
        "nodes[1].address: '0.0.0.0:7002' is no address at which a node can be called; "
        "name the machine here, and this as listen",
    ),
    "a node that listens to a network without TLS": (
        TWO_NODES + 'listen = "0.0.0.0:7002"',
        "nodes[1].listen: 0.0.0.0:7002 is on a network, where both sides must prove who they are; "
        "name the certificates' directory (certificates, filled by workerctl node certificate), or "
        "the node's own files (tls)",
    ),
    "a node that listens elsewhere than it is called": (
        TWO_NODES + 'listen = "unix:x"',
        "nodes[1].listen: 'unix:x' and address must both be sockets, or both HOST:PORT",
    ),
    "a socket whose path is too long": (
        TWO_NODES.replace("127.0.0.1:7002", f"unix:/{'x' * 120}"),
        f"nodes[1].address: 'unix:/{'x' * 120}' comes to /{'x' * 120}, 121 bytes where a socket's "
        "path may have 100; use a shorter one, or a port of 127.0.0.1",
    ),
    # of models and members
    "a member of an unknown model": (
        TWO_NODES.replace("kimi-k2.6:decode", "kimi-k2.5:decode"),
        "nodes[1].members[0]: the catalog offers no model 'kimi-k2.5'; did you mean kimi-k2.6?",
    ),
    "a member without a phase": (
        TWO_NODES.replace("kimi-k2.6:decode", "kimi-k2.6"),
        "nodes[1].members[0]: 'kimi-k2.6' names no phase; write \"kimi-k2.6:prefill\" or "
        '"kimi-k2.6:decode"',
    ),
    "a member twice": (
        TWO_NODES.replace('"kimi-k2.6:decode"', f'"kimi-k2.6:decode", "{KIMI}:decode"'),
        f"nodes[1].members[1]: '{KIMI}:decode' is there already, as nodes[1].members[0]; "
        "take one out",
    ),
    "a model without a decode member": (
        CATALOG + PREFILL,
        f'nodes: {KIMI} has no decode member; add "kimi-k2.6:decode" to a node\'s members, or '
        "leave the model out of catalog.offer",
    ),
    "a model that nobody serves": (
        CATALOG + CATALOG.replace("kimi", "other") + BOTH,
        "nodes: @cf/moonshotai/other-k2.6 has no prefill member and no decode member; add "
        '"other-k2.6:prefill" and "other-k2.6:decode" to a node\'s members, or leave the model out '
        "of catalog.offer",
    ),
    "an offer of an unknown model": (
        '[catalog]\noffer = ["kimi-k2"]\n' + BOTH,
        "catalog.offer[0]: the catalog offers no model 'kimi-k2'; did you mean kimi-k2.6?",
    ),
    "a catalog of two kinds": (
        '[catalog]\nfile = "x.json"\n' + TWO_NODES,
        "catalog: give either file or models, not both",
    ),
    "a catalog that is not there": (
        '[catalog]\nfile = "x.json"\n' + BOTH,
        "catalog.file: cannot read the catalog {folder}/x.json: No such file or directory",
    ),
    "two models of one name": (
        CATALOG + CATALOG + BOTH,
        f"catalog.models: the catalog has the name '{KIMI}' twice",
    ),
    "a directory of an unknown model": (
        TWO_NODES + '[nodes.directories]\n"kimi" = "x"',
        "nodes[1].directories: the catalog offers no model 'kimi'; did you mean kimi-k2.6?",
    ),
    # of settings that exclude each other
    "more threads than determinism allows": (
        TWO_NODES + "deterministic = true\nthreads = 2",
        "nodes[1]: deterministic needs threads to be 1 on a CPU, not 2",
    ),
    "two sizes of one cache": (
        TWO_NODES + "num_pages = 10\ncache_bytes = 1000",
        "nodes[1]: give one of num_pages, cache_bytes and memory_fraction",
    ),
    # of pools
    "formats that no hand-off converts": (
        CATALOG + PREFILL + 'cache = "fp8"\n' + DECODE,
        f"nodes[1].members[0]: {KIMI}:decode keeps its pages in bf16, which pages in fp8 of "
        f"{KIMI}:prefill (nodes[0].members[0]) cannot become; keep them in fp8 here",
    ),
    "an exact cache for decode alone": (
        TWO_NODES + 'cache = "float32"',
        f"nodes[1].members[0]: {KIMI}:decode keeps its pages in float32, which pages in bf16 of "
        f"{KIMI}:prefill (nodes[0].members[0]) cannot become; keep them in bf16 or fp8 here",
    ),
    "a pool of an unknown model": (
        TWO_NODES + POOL.replace("kimi-k2.6", "glm-5.2"),
        f"pools[0].model: the catalog offers no model 'glm-5.2'; known here: {KIMI}, kimi-k2.6",
    ),
    "a pool twice": (
        TWO_NODES + POOL + POOL,
        "pools[1]: kimi-k2.6:decode has a table already; join the two",
    ),
    "a pool of a phase that is none": (
        TWO_NODES + POOL.replace('"decode"', '"encode"'),
        'pools[0].phase: must be "decode" or "prefill", not "encode"',
    ),
    "a pool of an unknown node": (
        TWO_NODES + POOL + 'nodes = ["decoder"]',
        "pools[0].nodes[0]: there is no node 'decoder'; did you mean decode?",
    ),
    "a pool of a node without the member": (
        TWO_NODES + POOL + 'nodes = ["prefill"]',
        "pools[0].nodes[0]: node 'prefill' has no such member; add \"kimi-k2.6:decode\" to its "
        "members",
    ),
    "a node that pools leave nothing": (
        TWO_NODES
        + DECODE.replace('"decode"', '"spare"').replace("7002", "7003")
        + POOL
        + 'nodes = ["decode"]',
        "nodes[2].members: pools leave it nothing to run; list it in pools, or take it out",
    ),
    "one node, two checkpoints": (
        CATALOG + BOTH + POOL + 'directory = "models/int4"',
        f"nodes[0].members[1]: a node loads {KIMI} once, and its pools name two directories, "
        "{folder}/models/kimi and {folder}/models/int4; use two nodes, or say nodes[0].directories",
    ),
    # of networks
    "a network without TLS": (
        TWO_NODES.replace("127.0.0.1:7002", ABROAD),
        "nodes[1].address: 10.0.0.2:7002 is on a network, where both sides must prove who they "
        "are; name the certificates' directory (certificates, filled by workerctl node "
        "certificate), or the node's own files (tls)",
    ),
    "TLS of one node alone": (
        TWO_NODES + '[nodes.tls]\nca = "ca.pem"\ncertificate = "d.pem"\nkey = "d.key"',
        "nodes[0].tls: is missing, and other nodes have it; name the certificates' directory "
        "(certificates, filled by workerctl node certificate)",
    ),
    "TLS without a key": (
        TWO_NODES + '[nodes.tls]\nca = "ca.pem"\ncertificate = "d.pem"',
        "nodes[1].tls.key: is missing, and has no default",
    ),
    "pages that cannot come home": (
        CERTIFICATES + TWO_NODES.replace("127.0.0.1:7001", "10.0.0.1:7001"),
        "nodes[1].members[0]: decode is at 127.0.0.1:7002, which its own machine alone reaches, and "
        "takes pages from prefill at 10.0.0.1:7001; give nodes[1].address a host and port that "
        "prefill reaches",
    ),
}


@pytest.mark.parametrize(("text", "problem"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_wrong_is_told_by_key(tmp_path: Path, text: str, problem: str) -> None:
    path = a_file(tmp_path, text)
    with pytest.raises(DeploymentError) as caught:
        load_deployment(path)
    assert str(caught.value) == f"{path}: {problem.format(folder=tmp_path)}"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    with pytest.raises(DeploymentError) as caught:
        load_deployment(path)
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"


def test_the_fields_of_an_error_can_be_read(tmp_path: Path) -> None:
    path = a_file(tmp_path, TWO_NODES + "threads = 0")
    with pytest.raises(DeploymentError) as caught:
        load_deployment(path)
    assert (caught.value.file, caught.value.key) == (str(path), "nodes[1].threads")
