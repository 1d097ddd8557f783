"""Commands before a person: questions, and what Ctrl-C does to them."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.command_line import PROGRAM
from support.fake_control_plane import TOKEN, ControlPlaneFake
from support.http_peer import PATIENCE_S, Exchange, a_peer
from support.worker_folder import WorkerFolder


@dataclass
class Terminal:
    """A command, and the terminal it runs in."""

    process: subprocess.Popen[bytes]
    end: int
    seen: bytes = b""

    def until(self, words: bytes) -> bytes:
        """Read until words have come; return all that was seen."""
        while words not in self.seen:
            assert select.select([self.end], [], [], PATIENCE_S)[0], self.seen
            self.seen += os.read(self.end, 4096)
        return self.seen

    def interrupt(self) -> None:
        """Do what Ctrl-C does, once the command waits for keys.

        Before that a signal is noted, but nothing wakes the reading that begins just then.
        """
        stat = Path(f"/proc/{self.process.pid}/stat")
        deadline_s = time.monotonic() + PATIENCE_S
        while stat.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < deadline_s
            os.sched_yield()
        self.process.send_signal(signal.SIGINT)

    def type(self, keys: str) -> None:
        os.write(self.end, keys.encode())

    def rest(self) -> tuple[int, bytes]:
        """Wait for the end; return the exit code, and all that was seen."""
        code = self.process.wait(PATIENCE_S)
        while select.select([self.end], [], [], 0)[0]:
            try:
                self.seen += os.read(self.end, 4096)
            except OSError:
                # the other end is closed
                break
        return code, self.seen


@contextmanager
def at_a_terminal(*arguments: str) -> Iterator[Terminal]:
    end, inside = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, *arguments]
    # a session of its own has no terminal but this one
    with subprocess.Popen(
        command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True
    ) as process:
        try:
            yield Terminal(process, end)
        finally:
            process.kill()
            os.close(inside)
            os.close(end)


@pytest.fixture
def deployed(folder: WorkerFolder) -> WorkerFolder:
    assert folder.run("deploy").exit_code == 0
    return folder


def test_a_secret_is_asked_for_without_echo(
    plane: ControlPlaneFake, deployed: WorkerFolder
) -> None:
    with at_a_terminal("secret", "put", "KEY") as terminal:
        terminal.until(b"Value of KEY: ")
        terminal.type("correct horse\n")
        code, seen = terminal.rest()

    assert code == 0
    assert b"correct horse" not in seen
    assert plane.workers["hello"].secrets == {"KEY": "correct horse"}


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (["secret", "put", "KEY"], b"Value of KEY: "),
        (["delete"], b"Delete hello? This cannot be undone. [y/N]: "),
        (["rollback"], b"Roll hello back to this version? [y/N]: "),
        (["login"], b"Control plane [http://127.0.0.1:8787/client/v4]: "),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_ctrl_c_at_a_question_ends_with_130_and_does_nothing(
    plane: ControlPlaneFake, deployed: WorkerFolder, arguments: list[str], question: bytes
) -> None:
    deployed.run("deploy")
    before = len(plane.calls)

    with at_a_terminal(*arguments) as terminal:
        terminal.until(question)
        terminal.interrupt()
        code, seen = terminal.rest()

    assert code == 130
    assert b"Traceback" not in seen
    assert {call.method for call in plane.calls[before:]} <= {"GET"}


def test_ctrl_c_while_an_upload_is_looked_at_hangs_up_and_ends_with_130(
    folder: WorkerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_there = threading.Event()

    def script(exchange: Exchange) -> None:
        if exchange.method == "GET":
            exchange.send_json({"success": False, "errors": [{"code": 10007}]}, status=404)
            return
        is_there.set()
        exchange.wait_for_hangup()

    with a_peer(script) as peer:
        for name, value in peer.environment.items():
            monkeypatch.setenv(name, value)
        with at_a_terminal("deploy") as terminal:
            assert is_there.wait(PATIENCE_S)
            terminal.interrupt()
            code, seen = terminal.rest()
        peer.wait_for_scripts(2)

    assert code == 130
    assert b"Traceback" not in seen
    assert b"Deployed" not in seen


def test_no_is_an_answer(plane: ControlPlaneFake, deployed: WorkerFolder) -> None:
    with at_a_terminal("delete") as terminal:
        terminal.until(b"[y/N]: ")
        terminal.type("n\n")
        code, _ = terminal.rest()

    assert code == 1
    assert "hello" in plane.workers


def test_a_login_asks_for_what_it_needs(
    plane: ControlPlaneFake, deployed: WorkerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in plane.environment:
        monkeypatch.delenv(name)

    with at_a_terminal("login") as terminal:
        terminal.until(b"Control plane [http://127.0.0.1:8787/client/v4]: ")
        terminal.type(f"{plane.base_url}\n")
        terminal.until(b"Token for ")
        terminal.type(f"{TOKEN}\n")
        code, seen = terminal.rest()

    assert code == 0
    assert TOKEN.encode() not in seen
    assert deployed.run_json("whoami")["token_from"] == "login"


def test_colors_are_left_out_where_they_are_not_wanted(
    deployed: WorkerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_a_terminal("versions", "list") as terminal:
        _, colored = terminal.rest()
    monkeypatch.setenv("NO_COLOR", "1")
    with at_a_terminal("versions", "list") as terminal:
        _, plain = terminal.rest()

    assert b"\x1b[" in colored
    assert b"\x1b[" not in plain
    assert b"Version ID:" in plain
