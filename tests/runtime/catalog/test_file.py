from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.errors import ConfigurationError


def a_file(folder: Path, **fields: Any) -> Path:
    path = folder / "catalog.json"
    path.write_text(json.dumps({"models": [{"id": "m", "directory": "models/m", **fields}]}))
    return path


def test_the_built_in_catalog_offers_both_models_under_all_their_names() -> None:
    catalog = load_catalog()

    for name in ("kimi-k2.6", "@cf/moonshotai/kimi-k2.6"):
        assert catalog.resolve(name).id == "@cf/moonshotai/kimi-k2.6"
    for name in ("glm-5.2", "@cf/zai-org/glm-5.2"):
        assert catalog.resolve(name).id == "@cf/zai-org/glm-5.2"


def test_the_built_in_prices_are_the_published_ones() -> None:
    prices = {entry.id: entry.prices for entry in load_catalog().entries}

    kimi, glm = prices["@cf/moonshotai/kimi-k2.6"], prices["@cf/zai-org/glm-5.2"]
    assert kimi is not None and glm is not None
    assert (kimi.input, kimi.cached_input, kimi.output) == (0.95, 0.16, 4.00)
    assert (glm.input, glm.cached_input, glm.output) == (1.40, 0.26, 4.40)


def test_a_relative_directory_starts_at_the_file(tmp_path: Path) -> None:
    [entry] = load_catalog(a_file(tmp_path)).entries

    assert entry.directory == str(tmp_path / "models" / "m")


def test_an_absolute_directory_stays(tmp_path: Path) -> None:
    [entry] = load_catalog(a_file(tmp_path, directory="/srv/kimi")).entries

    assert entry.directory == "/srv/kimi"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"prizes": {}}, "unknown field `prizes`"),
        ({"context_tokens": 0}, r"models\[0\]\.context_tokens"),
        ({"capabilities": ["flying"]}, r"models\[0\]\.capabilities"),
        ({"prices": {"input": -1, "output": 1}}, r"models\[0\]\.prices\.input"),
        ({"id": "a model"}, r"models\[0\]\.id"),
        ({"created_at": "yesterday"}, "created_at is no time"),
        ({"result_shape": "xml"}, r"models\[0\]\.result_shape"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_entry_is_refused_with_file_and_field(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"catalog\.json: .*{problem}"):
        load_catalog(a_file(tmp_path, **fields))


def test_a_missing_file_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.json"):
        load_catalog(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("created_at", "created_s"),
    [
        ("2026-01-01 00:00:00.000", 1767225600),
        ("2026-01-01T01:00:00+01:00", 1767225600),
        ("1970-01-02", 86400),
    ],
)
def test_an_entry_knows_when_it_was_added(tmp_path: Path, created_at: str, created_s: int) -> None:
    [entry] = load_catalog(a_file(tmp_path, created_at=created_at)).entries

    assert entry.created_s == created_s


def test_answers_have_openais_form_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    [newer] = load_catalog(a_file(tmp_path)).entries
    [older] = load_catalog(a_file(tmp_path, result_shape="response")).entries

    assert (newer.result_shape, older.result_shape) == ("chat.completion", "response")
