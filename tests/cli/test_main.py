"""How every command of `workerctl` begins and ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import tenantry
from support.answers import a_chunk
from support.command_line import a_workerctl_process, workerctl
from support.http_peer import Exchange, a_peer


def test_the_version_is_the_sdks() -> None:
    result = workerctl("--version", env={})
    assert (result.exit_code, result.stdout) == (0, f"workerctl {tenantry.__version__}\n")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["ai", "-h"], ["ai", "run", "-h"], ["dev", "-h"]]
)
def test_every_command_explains_itself(arguments: list[str]) -> None:
    result = workerctl(*arguments, env={})
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: workerctl")


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["ai", "run", "kimi-k2.6"], ["ai", "models", "--xml"], ["dev", "--port", "0"]],
)
def test_a_wrong_command_line_ends_with_two(arguments: list[str]) -> None:
    result = workerctl(*arguments, env={})
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: workerctl" in result.stderr


def test_an_error_is_one_line_and_ends_with_one(tmp_path: Path) -> None:
    env = {
        "TENANTRY_CONFIG_DIR": str(tmp_path),
        "TENANTRY_BASE_URL": "",
        "TENANTRY_ACCOUNT_ID": "",
        "TENANTRY_API_TOKEN": "",
    }
    result = workerctl("ai", "models", env=env)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: not configured")
    assert "workerctl dev" in line


def test_an_error_of_many_lines_becomes_one() -> None:
    def script(exchange: Exchange) -> None:
        exchange.send_json(
            {"errors": [{"code": 5006, "message": "messages:\n\tmust not be empty"}]}, status=400
        )

    with a_peer(script) as peer:
        result = workerctl("ai", "run", "kimi-k2.6", "?", env=peer.environment)
    assert result.stderr == "Error: messages: must not be empty [code: 5006]\n"


def test_ctrl_c_hangs_up_and_ends_quietly_with_130() -> None:
    def script(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.send_event(a_chunk(content="four"))
        exchange.wait_for_hangup()

    with (
        a_peer(script) as peer,
        a_workerctl_process("ai", "run", "kimi-k2.6", "?", env=peer.environment) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(4) == b"four"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stdout.read() == b"\n"
        assert process.stderr.read() == b""
        peer.wait_for_scripts(1)


def test_a_reader_that_goes_away_is_no_noise() -> None:
    def script(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.send_event(a_chunk(content="four"))
        try:
            while True:
                exchange.send_event(a_chunk(content="more" * 1000))
        except (BrokenPipeError, ConnectionResetError):
            pass

    with (
        a_peer(script) as peer,
        a_workerctl_process("ai", "run", "kimi-k2.6", "?", env=peer.environment) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(4) == b"four"
        process.stdout.close()
        assert process.wait() == 1
        assert process.stderr.read() == b""


def test_an_argument_that_is_no_text_is_told_in_a_line(tmp_path: Path) -> None:
    env = {
        "TENANTRY_CONFIG_DIR": str(tmp_path),
        "TENANTRY_BASE_URL": "http://127.0.0.1:9/client/v4",
        "TENANTRY_ACCOUNT_ID": "dev",
        "TENANTRY_API_TOKEN": "t",
    }
    # what Python makes of a byte that is no UTF-8
    result = workerctl("ai", "run", "kimi-k2.6", "\udcff", env=env)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: an argument or the input is not UTF-8 text\n"
