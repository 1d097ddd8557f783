from __future__ import annotations

import pytest

from tenantry_runtime.catalog import Catalog, CatalogEntry
from tenantry_runtime.errors import ConfigurationError, UnknownModel

KIMI = CatalogEntry(id="@cf/moonshotai/kimi-k2.6", aliases=("kimi-k2.6",), directory="/kimi")
GLM = CatalogEntry(id="@cf/zai-org/glm-5.2", aliases=("glm-5.2",), directory="/glm")
CATALOG = Catalog([KIMI, GLM])


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("kimi-k2.6", KIMI),
        ("@cf/moonshotai/kimi-k2.6", KIMI),
        ("glm-5.2", GLM),
        ("@cf/zai-org/glm-5.2", GLM),
    ],
)
def test_a_model_is_found_by_id_and_alias(name: str, entry: CatalogEntry) -> None:
    assert CATALOG.resolve(name) is entry


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("kimi-k2.5", ("kimi-k2.6",)),
        ("Kimi-K2.6", ("kimi-k2.6",)),
        ("@cf/moonshot/kimi-k2.6", ("@cf/moonshotai/kimi-k2.6",)),
        ("@cf/zai-org/glm-5.3", ("@cf/zai-org/glm-5.2",)),
        ("glm", ("glm-5.2",)),
        ("gpt-oss-120b", ()),
        ("", ()),
    ],
)
def test_an_unknown_name_is_refused_with_near_matches(name: str, near: tuple[str, ...]) -> None:
    with pytest.raises(UnknownModel) as caught:
        CATALOG.resolve(name)

    assert caught.value.near == near
    assert caught.value.model == name


def test_a_near_match_names_each_model_once() -> None:
    twins = Catalog([CatalogEntry(id="model-a", aliases=("model-b", "model-c"), directory="/")])

    with pytest.raises(UnknownModel) as caught:
        twins.resolve("model-d")

    assert len(caught.value.near) == 1


def test_a_huge_name_is_cut_in_the_error() -> None:
    with pytest.raises(UnknownModel) as caught:
        CATALOG.resolve("x" * 100_000)

    assert len(str(caught.value)) < 300


def test_two_models_cannot_share_a_name() -> None:
    other = CatalogEntry(id="@cf/other/kimi", aliases=("kimi-k2.6",), directory="/other")

    with pytest.raises(ConfigurationError, match=r"'kimi-k2\.6' twice"):
        Catalog([KIMI, other])


def test_the_author_stands_in_the_id() -> None:
    assert KIMI.author == "moonshotai"
    assert CatalogEntry(id="kimi", directory="/").author == ""
