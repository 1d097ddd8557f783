"""The credentials file: its place, its mode, what happens when it is unusable."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import platformdirs
import pytest

from tenantry import ConfigurationError
from tenantry.credentials import Credentials, credentials_path, load_credentials, save_credentials

SAVED = Credentials(
    base_url="http://127.0.0.1:8787/client/v4", account_id="dev", api_token="secret-of-dev"
)


def test_the_file_lies_in_the_users_configuration_directory() -> None:
    expected = Path(platformdirs.user_config_dir("tenantry")) / "credentials.json"
    assert credentials_path({}) == expected


def test_the_directory_can_be_moved(tmp_path: Path) -> None:
    path = credentials_path({"TENANTRY_CONFIG_DIR": str(tmp_path)})
    assert path == tmp_path / "credentials.json"


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "new" / "credentials.json"
    save_credentials(SAVED, path)
    assert load_credentials(path) == SAVED
    assert json.loads(path.read_text()) == {
        "base_url": "http://127.0.0.1:8787/client/v4",
        "account_id": "dev",
        "api_token": "secret-of-dev",
    }


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.write_text("{}")
    path.chmod(0o644)
    save_credentials(SAVED, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_saving_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    save_credentials(SAVED, path)
    save_credentials(SAVED, path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_save_leaves_no_token_behind(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.mkdir()
    with pytest.raises(OSError, match="irectory"):
        save_credentials(SAVED, path)
    assert list(tmp_path.iterdir()) == [path]


def test_no_file_is_no_credentials(tmp_path: Path) -> None:
    assert load_credentials(tmp_path / "credentials.json") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"base_url": "http://127.0.0.1"}', '{"a": 1}'])
def test_an_unusable_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"credentials\.json is unusable"):
        load_credentials(path)


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(
        '{"base_url": "http://h/v4", "account_id": "a", "api_token": "t", "expires": 1}'
    )
    loaded = load_credentials(path)
    assert loaded == Credentials(base_url="http://h/v4", account_id="a", api_token="t")


def test_the_token_is_not_printed() -> None:
    assert "secret-of-dev" not in repr(SAVED)
