"""`workerctl tenant secret`: values come by a pipe and never out again; keys are replaced step by step."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from click.testing import Result

from support.command_line import PROGRAM, workerctl
from support.http_peer import PATIENCE_S
from support.secret_keys import FIRST, SECOND, in_base64, managed_keys, named_keys
from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import open_store
from tenantry_runtime.tenancy.secret_keys import KEY_VARIABLE, KeySource
from tenantry_runtime.tenancy.secrets import Secrets

VALUE = "correct horse battery staple"


class Operator:
    """Runs `workerctl tenant secret` on one store."""

    def __init__(self, state_dir: Path, url: str | None = None) -> None:
        self.state_dir = state_dir
        self.url = url

    def __call__(
        self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None
    ) -> Result:
        place = ["--state-dir", str(self.state_dir)]
        if self.url is not None:
            place += ["--store", self.url]
        return workerctl("tenant", "secret", *arguments, *place, env=env or {}, stdin=stdin)

    def reveal(self, account: str, name: str, keys: KeySource | None = None) -> str:
        async def get() -> str:
            async with open_store(self.state_dir, url=self.url) as store:
                secrets = Secrets(store.database, keys or managed_keys(self.state_dir))
                return (await secrets.get(TenantId(account), name)).value

        return anyio.run(get)


@pytest.fixture
def secret(tmp_path: Path, database_url: str | None) -> Operator:
    async def make_account() -> None:
        async with open_store(tmp_path, url=database_url) as store:
            await store.create_account(TenantId("acme"))

    anyio.run(make_account)
    return Operator(tmp_path, database_url)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"], ids=["nothing", "newline", "windows"])
def test_a_secret_comes_by_a_pipe_and_is_kept_without_the_last_line_end(
    secret: Operator, end: str
) -> None:
    put = secret("put", "acme", "API_KEY", stdin=f"line\n{VALUE}\n{end}")

    assert (put.exit_code, put.output) == (0, "kept API_KEY of acme\n")
    assert secret.reveal("acme", "API_KEY") == f"line\n{VALUE}" + ("\n" if end else "")


def test_a_person_is_asked_twice_and_sees_nothing(secret: Operator) -> None:
    place = ["--state-dir", str(secret.state_dir), *(["--store", secret.url] if secret.url else [])]
    command = [sys.executable, "-c", PROGRAM, "tenant", "secret", "put", "acme", "KEY", *place]
    terminal, end = pty.openpty()
    try:
        # a session of its own has no terminal but this one
        with subprocess.Popen(command, stdin=end, stdout=end, stderr=end, start_new_session=True):
            os.close(end)
            seen = _read_until(terminal, b"Value: ")
            os.write(terminal, f"{VALUE}\n".encode())
            seen += _read_until(terminal, b"Repeat for confirmation: ")
            os.write(terminal, f"{VALUE}\n".encode())
            seen += _read_until(terminal, b"kept KEY of acme")
    finally:
        os.close(terminal)

    assert VALUE.encode() not in seen
    assert secret.reveal("acme", "KEY") == VALUE


def test_listings_show_names_and_dates(secret: Operator) -> None:
    for name in ("B_KEY", "A_KEY"):
        secret("put", "acme", name, stdin=VALUE)

    table, listed = secret("list", "acme"), secret("list", "acme", "--json")

    assert [line.split()[0] for line in table.output.splitlines()] == ["NAME", "A_KEY", "B_KEY"]
    assert [each["name"] for each in json.loads(listed.output)] == ["A_KEY", "B_KEY"]
    assert all(set(each) == {"name", "updated"} for each in json.loads(listed.output))
    assert VALUE not in table.output + listed.output


def test_a_deleted_secret_is_gone(secret: Operator) -> None:
    secret("put", "acme", "KEY", stdin=VALUE)

    assert secret("delete", "acme", "KEY").output == "deleted KEY of acme\n"
    again = secret("delete", "acme", "KEY")
    assert (again.exit_code, again.stderr) == (1, "Error: acme has no secret KEY\n")


@pytest.mark.parametrize(
    ("arguments", "stdin", "problem"),
    [
        (["acme", "bad-name"], VALUE, "'bad-name' is not"),
        (["nobody", "KEY"], VALUE, "no account 'nobody'; `workerctl tenant list` lists them"),
        (["acme", "KEY"], "", "value: has 0 bytes"),
    ],
    ids=["name", "tenant", "empty"],
)
def test_what_is_refused_says_why_in_one_line(
    secret: Operator, arguments: list[str], stdin: str, problem: str
) -> None:
    refused = secret("put", *arguments, stdin=stdin)

    assert refused.exit_code == 1
    assert problem in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert VALUE not in refused.stderr


def test_a_value_is_no_argument(secret: Operator) -> None:
    refused = secret("put", "acme", "KEY", VALUE)

    assert refused.exit_code == 2
    assert not secret("list", "acme", "--json").output.strip("[]\n ")


def test_a_machine_alone_replaces_its_key_in_one_step(tmp_path: Path) -> None:
    secret = Operator(tmp_path)

    async def make_account() -> None:
        async with open_store(tmp_path) as store:
            await store.create_account(TenantId("acme"))

    anyio.run(make_account)
    secret("put", "acme", "KEY", stdin=VALUE)
    (old,) = managed_keys(tmp_path).load_or_make().keys

    rotated = secret("rotate-key")

    (new,) = managed_keys(tmp_path).load_or_make().keys
    assert rotated.exit_code == 0
    assert rotated.output.splitlines() == [
        f"encrypted 1 secrets anew, with key {new.id}",
        f"forgot {old.id}: nothing is encrypted with it any more",
    ]
    assert new != old
    assert secret.reveal("acme", "KEY") == VALUE


@pytest.mark.postgresql
def test_machines_that_share_a_store_are_told_of_a_key_before_it_is_used(
    tmp_path: Path, postgresql_url: str
) -> None:
    secret = Operator(tmp_path, postgresql_url)

    async def make_account() -> None:
        async with open_store(tmp_path, url=postgresql_url) as store:
            await store.create_account(TenantId("acme"))

    anyio.run(make_account)
    secret("put", "acme", "KEY", stdin=VALUE)

    refused = secret("rotate-key")
    assert refused.exit_code == 1
    assert "rotate-key --prepare" in refused.stderr

    prepared = secret("rotate-key", "--prepare")
    following = managed_keys(tmp_path).load_or_make().following
    assert following is not None
    assert f"made the next key, {following.id}" in prepared.output
    rotated = secret("rotate-key")
    assert f"with key {following.id}" in rotated.output
    assert "copy" in rotated.output.splitlines()[-1]
    assert secret.reveal("acme", "KEY") == VALUE

    assert secret("rotate-key", "--alone").exit_code == 0


def test_keys_of_the_environment_are_the_operators_to_replace(secret: Operator) -> None:
    before = {KEY_VARIABLE: in_base64(FIRST)}
    both = {KEY_VARIABLE: f"{in_base64(SECOND)},{in_base64(FIRST)}"}
    secret("put", "acme", "KEY", stdin=VALUE, env=before)

    rotated = secret("rotate-key", env=both)

    assert rotated.output.splitlines() == [
        f"encrypted 1 secrets anew, with key {SECOND.id}",
        f"{FIRST.id} may be taken out of TENANTRY_SECRETS_KEY on all machines",
    ]
    assert secret.reveal("acme", "KEY", named_keys(SECOND)) == VALUE
    assert not (secret.state_dir / "secrets.key").exists()
    assert secret("rotate-key", "--prepare", env=before).exit_code == 2


def test_a_secret_whose_key_is_not_there_keeps_a_rotation_from_its_end(secret: Operator) -> None:
    secret("put", "acme", "KEY", stdin=VALUE, env={KEY_VARIABLE: in_base64(FIRST)})

    rotated = secret("rotate-key", env={KEY_VARIABLE: in_base64(SECOND)})

    assert rotated.exit_code == 1
    assert f"encrypted with key {FIRST.id}, which is not in TENANTRY_SECRETS_KEY" in rotated.stderr
    assert secret.reveal("acme", "KEY", named_keys(FIRST)) == VALUE


def _read_until(terminal: int, words: bytes) -> bytes:
    seen = b""
    while words not in seen:
        assert select.select([terminal], [], [], PATIENCE_S)[0], seen
        seen += os.read(terminal, 4096)
    return seen
