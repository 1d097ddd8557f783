"""A deployment's file that is written reads as what was written."""

from __future__ import annotations

import tomllib

import msgspec
import pytest
from hypothesis import given, strategies as st

from tenantry_runtime.catalog import CatalogEntry, Prices
from tenantry_runtime.deployment import (
    CatalogPart,
    DeploymentFile,
    EdgePart,
    NodePart,
    PoolPart,
    to_toml,
)
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.pool.tls import TlsFiles

NODE = NodePart(name="n", address="unix:n.sock", members=("m:prefill", "m:decode"))


def read(text: str) -> DeploymentFile:
    return msgspec.convert(tomllib.loads(text), type=DeploymentFile)


def test_everything_that_can_be_said_comes_back() -> None:
    tls = TlsFiles(ca="ca", certificate="c", key="k")
    entry = CatalogEntry(
        id="m", directory="d", prices=Prices(input=0.5, output=1), capabilities=("reasoning",)
    )
    file = DeploymentFile(
        state_dir="s",
        certificates="c",
        catalog=CatalogPart(models=(entry,), offer=("m",)),
        edge=EdgePart(port=9, show_routing=True, tls=tls),
        nodes=(
            NODE,
            msgspec.structs.replace(
                NODE, name="o", threads=2, directories={"a/b @": "x"}, tls=tls, drain_s=0.0
            ),
        ),
        pools=(PoolPart(model="m", phase="decode", nodes=("n",), cache="fp8"),),
    )
    assert read(to_toml(file)) == file


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_is_quoted(text: str) -> None:
    file = DeploymentFile(
        state_dir=text,
        nodes=(msgspec.structs.replace(NODE, directories={text: text}),),
    )
    assert read(to_toml(file)) == file


def test_a_comment_comes_first() -> None:
    text = to_toml(DeploymentFile(nodes=(NODE,)), comment="One.\n\nTwo.")
    assert text.startswith("# One.\n#\n# Two.\n\n[[nodes]]\n")
    assert text.endswith("\n")


def test_a_path_that_is_no_text_is_refused() -> None:
    file = DeploymentFile(state_dir="caf\udce9", nodes=(NODE,))
    with pytest.raises(ConfigurationError, match=r"'\\udce9' in a path is no text"):
        to_toml(file)
