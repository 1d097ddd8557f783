"""Keys of secrets: where they may be, how they are replaced, and that nothing tells them."""

from __future__ import annotations

import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.secret_keys import FIRST, SECOND, in_base64, managed_keys, named_keys
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.tenancy.secret_keys import (
    KEY_FILE,
    KEY_FILE_VARIABLE,
    KEY_VARIABLE,
    Key,
    KeySource,
    new_key,
)


def from_text(text: str) -> tuple[Key, ...]:
    ring = KeySource(Path("unused"), environ={KEY_VARIABLE: text}).load()
    assert ring is not None
    return ring.keys


def test_the_first_use_makes_a_file_that_its_owner_alone_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    keys = managed_keys(folder)
    assert keys.load() is None

    made = keys.load_or_make()

    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    assert keys.load_or_make() == made == managed_keys(folder).load()
    assert [path.name for path in folder.iterdir()] == [KEY_FILE]


def test_processes_that_come_at_once_have_one_key(tmp_path: Path) -> None:
    sources = [managed_keys(tmp_path) for _ in range(16)]

    with ThreadPoolExecutor(16) as threads:
        rings = list(threads.map(KeySource.load_or_make, sources))

    assert len(set(rings)) == 1


def test_a_key_is_read_in_base64_and_in_hexadecimal() -> None:
    """As OpenSSL writes it, of the bytes that it has been given."""
    material = bytes(range(200, 232))
    written = [
        subprocess.run(command, input=material, check=True, capture_output=True).stdout.decode()
        for command in (["openssl", "base64", "-A"], ["openssl", "base64"])
    ]
    written.append("c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7")

    assert [from_text(text) for text in written] == [(Key(material),)] * 3


def test_base64_may_lack_its_padding_or_be_that_of_urls() -> None:
    material = bytes([0xFB, 0xFF] * 16)

    for text in (
        "+//7//v/+//7//v/+//7//v/+//7//v/+//7//v/+/8=",
        "-__7__v_-__7__v_-__7__v_-__7__v_-__7__v_-_8",
    ):
        assert from_text(text) == (Key(material),)


def test_several_keys_are_separated_by_commas_and_the_first_comes_first() -> None:
    assert named_keys(FIRST, SECOND).load_or_make().keys == (FIRST, SECOND)


@pytest.mark.parametrize(
    "text",
    ["", ",", "no-key", "00" * 31, "zz" * 32, in_base64(FIRST)[:-4], in_base64(FIRST) + " AAAA"],
    ids=["empty", "comma", "word", "too short", "no hex", "short base64", "two in one"],
)
def test_what_is_no_key_is_refused_without_being_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    source = KeySource(tmp_path, environ={KEY_FILE_VARIABLE: str(path)})

    with pytest.raises(ConfigurationError, match="key") as caught:
        source.load()

    assert not text.strip(",") or text not in str(caught.value)


def test_a_named_file_has_a_key_on_each_line_and_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# of 2026\n{in_base64(SECOND)}  # newest\n\n{FIRST.material.hex()}\n")
    source = KeySource(tmp_path, environ={KEY_FILE_VARIABLE: str(path)})

    assert source.load_or_make().keys == (SECOND, FIRST)
    assert not source.is_managed


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    source = KeySource(tmp_path, environ={KEY_FILE_VARIABLE: str(tmp_path / "gone")})

    with pytest.raises(ConfigurationError, match=r"TENANTRY_SECRETS_KEY_FILE names .*gone"):
        source.load()


def test_two_sources_contradict_each_other(tmp_path: Path) -> None:
    environ = {KEY_VARIABLE: in_base64(FIRST), KEY_FILE_VARIABLE: str(tmp_path / "keys")}

    with pytest.raises(ConfigurationError, match="not both"):
        KeySource(tmp_path, environ=environ)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    keys = managed_keys(tmp_path)
    keys.load_or_make()
    (tmp_path / KEY_FILE).chmod(0o640)

    with pytest.raises(ConfigurationError, match="chmod 600"):
        keys.load()


def test_keys_are_never_printed(tmp_path: Path) -> None:
    key = new_key()
    source = named_keys(key)
    printed = f"{key} {key!r} {source} {source!r} {source.load()} {key.id}"

    assert key.id in printed
    for secret in (key.material.hex(), in_base64(key), repr(key.material)):
        assert secret not in printed


def test_ids_tell_keys_apart() -> None:
    assert len({new_key().id for _ in range(100)} | {FIRST.id, SECOND.id}) == 102
    assert FIRST.id == Key(bytes(FIRST.material)).id


def test_a_new_key_comes_before_the_old_one_until_that_is_retired(tmp_path: Path) -> None:
    keys = managed_keys(tmp_path)
    (old,) = keys.load_or_make().keys

    new, kept = keys.advance().keys
    assert kept == old
    assert keys.advance().keys == (new, old), "the rotation goes on, it does not begin again"

    keys.retire([old.id])
    assert keys.load_or_make().keys == (new,)


def test_the_next_key_encrypts_nothing_until_it_is_its_turn(tmp_path: Path) -> None:
    keys = managed_keys(tmp_path)
    (old,) = keys.load_or_make().keys

    prepared = keys.prepare()
    assert prepared.keys == (old,)
    assert prepared.following is not None
    assert prepared.find(prepared.following.id) is prepared.following
    assert keys.prepare() == prepared, "there is one next key"

    advanced = keys.advance()
    assert advanced.keys == (prepared.following, old)
    assert advanced.following is None


def test_rotations_at_once_make_one_key(tmp_path: Path) -> None:
    managed_keys(tmp_path).load_or_make()

    with ThreadPoolExecutor(8) as threads:
        rings = list(threads.map(lambda _: managed_keys(tmp_path).advance(), range(8)))

    assert len({ring.keys for ring in rings}) == 1
