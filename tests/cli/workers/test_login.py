"""Who is signed in: by `login`, by the environment, by `dev`; and what is kept of it where."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fake_control_plane import TOKEN, ControlPlaneFake
from support.worker_folder import WorkerFolder
from tenantry.credentials import Credentials, save_credentials

KEYRING = """
from .errors import KeyringError
kept = {}
def get_password(service, user): return kept.get((service, user))
def set_password(service, user, password):
    if password == "refuse-me": raise KeyringError("locked")
    kept[service, user] = password
def delete_password(service, user): del kept[service, user]
"""


@pytest.fixture
def alone(folder: WorkerFolder, monkeypatch: pytest.MonkeyPatch) -> WorkerFolder:
    """Nobody is signed in."""
    for name in ("TENANTRY_BASE_URL", "TENANTRY_ACCOUNT_ID", "TENANTRY_API_TOKEN"):
        monkeypatch.delenv(name)
    return folder


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package `keyring` that keeps all in memory."""
    package = tmp_path / "site" / "keyring"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(KEYRING)
    (package / "errors.py").write_text("class KeyringError(Exception): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "keyring"]:
        del sys.modules[name]


def config_file(name: str) -> Path:
    return Path(os.environ["TENANTRY_CONFIG_DIR"]) / name


def test_a_login_is_kept_where_only_its_owner_reads_it(
    plane: ControlPlaneFake, alone: WorkerFolder
) -> None:
    login = alone.run("login", plane.base_url, stdin=f"{TOKEN}\n")

    path = config_file("login.json")
    assert login.stdout == f"Signed in to {plane.base_url} as acme\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert alone.run_json("whoami") == {
        "account": "acme",
        "name": "Acme Inc.",
        "base_url": plane.base_url,
        "token_from": "login",
    }
    assert alone.run("deploy").exit_code == 0


def test_a_token_that_is_not_good_is_not_kept(plane: ControlPlaneFake, alone: WorkerFolder) -> None:
    login = alone.run("login", plane.base_url, stdin="wrong")

    assert login.exit_code == 1
    assert "Authentication error" in login.stderr
    assert "wrong" not in login.output
    assert not config_file("login.json").exists()


def test_the_path_of_the_api_may_be_left_out(plane: ControlPlaneFake, alone: WorkerFolder) -> None:
    origin = plane.base_url.removesuffix("/client/v4")

    alone.run("login", f"{origin}/", stdin=TOKEN)

    assert alone.run_json("whoami")["base_url"] == plane.base_url


def test_a_logout_forgets_the_token(plane: ControlPlaneFake, alone: WorkerFolder) -> None:
    alone.run("login", plane.base_url, stdin=TOKEN)

    assert alone.run("logout").stdout == "Signed out.\n"
    assert alone.run("logout").stdout == "Nobody was signed in.\n"

    result = alone.run("whoami")
    assert result.exit_code == 1
    assert "you are not signed in; run `workerctl login`" in result.stderr


@pytest.mark.usefixtures("keyring")
def test_the_keyring_keeps_the_token_where_it_is_asked_to(
    plane: ControlPlaneFake, alone: WorkerFolder
) -> None:
    alone.run("login", plane.base_url, "--use-keyring", stdin=TOKEN)

    assert TOKEN not in config_file("login.json").read_text()
    assert alone.run_json("whoami")["token_from"] == "keyring"
    assert alone.run("deploy").exit_code == 0

    alone.run("logout")
    assert sys.modules["keyring"].kept == {}
    assert alone.run("whoami").exit_code == 1


def test_a_keyring_that_is_not_installed_is_said(
    plane: ControlPlaneFake, alone: WorkerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenantry_cli.workers.access.saved.find_spec", lambda _: None)

    login = alone.run("login", plane.base_url, "--use-keyring", stdin=TOKEN)

    assert login.exit_code == 1
    assert "pip install keyring" in login.stderr


def test_the_environment_beats_a_login(plane: ControlPlaneFake, alone: WorkerFolder) -> None:
    alone.run("login", plane.base_url, stdin=TOKEN)

    result = alone.run("whoami", "--json", env={**plane.environment})

    assert json.loads(result.stdout)["token_from"] == "environment"


def test_a_login_beats_what_dev_left_and_is_used_for_its_own_server_only(
    plane: ControlPlaneFake, alone: WorkerFolder
) -> None:
    left = Credentials(base_url="http://127.0.0.1:9/client/v4", account_id="dev", api_token="t")
    save_credentials(left, config_file("credentials.json"))
    alone.run("login", plane.base_url, stdin=TOKEN)

    assert alone.run_json("whoami")["account"] == "acme"

    other = {"TENANTRY_BASE_URL": "http://127.0.0.1:9/client/v4"}
    assert "cannot reach http://127.0.0.1:9" in alone.run("whoami", env=other).stderr
    nowhere = {"TENANTRY_BASE_URL": "http://127.0.0.1:10/client/v4"}
    assert "set TENANTRY_ACCOUNT_ID, TENANTRY_API_TOKEN" in alone.run("whoami", env=nowhere).stderr


def test_what_dev_left_is_enough(plane: ControlPlaneFake, alone: WorkerFolder) -> None:
    left = Credentials(base_url=plane.base_url, account_id="acme", api_token=TOKEN)
    save_credentials(left, config_file("credentials.json"))

    lines = alone.run("whoami").stdout.splitlines()

    assert lines == [
        "Account:        acme (Acme Inc.)",
        f"Control plane:  {plane.base_url}",
        "Token from:     `workerctl dev` on this machine",
    ]


@pytest.mark.parametrize(
    ("arguments", "stdin", "problem"),
    [
        (["ftp://x"], TOKEN, "'ftp://x/client/v4' is not an http:// or https:// URL"),
        (["http://x"], "", "standard input is empty"),
        (["http://x"], "two words", "the token holds a space"),
    ],
)
def test_what_cannot_be_a_login_is_refused(
    alone: WorkerFolder, arguments: list[str], stdin: str, problem: str
) -> None:
    login = alone.run("login", *arguments, stdin=stdin)

    assert login.exit_code in (1, 2)
    assert problem in login.stderr
