"""Deployments' files, as an operator writes them."""

from __future__ import annotations

from pathlib import Path

from tenantry_runtime.deployment import Deployment, load_deployment

CATALOG = """
[[catalog.models]]
id = "@cf/moonshotai/kimi-k2.6"
aliases = ["kimi-k2.6"]
directory = "models/kimi"
"""

PREFILL = """
[[nodes]]
name = "prefill"
address = "127.0.0.1:7001"
members = ["kimi-k2.6:prefill"]
"""

DECODE = """
[[nodes]]
name = "decode"
address = "127.0.0.1:7002"
members = ["kimi-k2.6:decode"]
"""

TWO_NODES = CATALOG + PREFILL + DECODE


def a_file(folder: Path, text: str) -> Path:
    path = folder / "cluster.toml"
    path.write_text(text)
    return path


def loaded(folder: Path, text: str) -> Deployment:
    return load_deployment(a_file(folder, text))
