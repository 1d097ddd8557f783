"""The real wrangler against `workerctl dev`, where what it deploys runs."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support.dev_server import DevServer
from support.wrangler import Wrangler, write_project

pytestmark = pytest.mark.conformance

LIVE_WITHIN_S = 20.0
"""A second, on a machine with nothing else to do."""

PATIENCE_S = 60.0

ENTRY = """\
from workers import Response, WorkerEntrypoint


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        print("asked for", request.url)
        if request.url.endswith("/count"):
            seen = int(await self.env.KV.get("seen") or "0") + 1
            await self.env.KV.put("seen", str(seen))
            return Response(str(seen))
        if request.url.endswith("/fail"):
            raise ValueError("as asked")
        return Response(f"{self.env.GREETING}, {self.env.KEY}")
"""


@pytest.fixture(scope="module")
def wrangler(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Wrangler:
    """A worker that is deployed, with a namespace and a secret."""
    folder, home = (tmp_path_factory.mktemp(name) for name in ("project", "home"))
    known = server.credentials
    url = known.base_url.removesuffix("/client/v4")
    made = Wrangler(
        url=url, account=known.account_id, token=known.api_token, folder=folder, home=home
    )
    write(made, "hello")
    made("kv", "namespace", "create", "SEEN")
    (namespace,) = made("kv", "namespace", "list").json
    write(made, "hello", namespace["id"])
    made("deploy")
    made("secret", "put", "KEY", stdin="hush")
    return made


def write(wrangler: Wrangler, greeting: str, namespace: str | None = None) -> None:
    bound = [] if namespace is None else [{"binding": "KV", "id": namespace}]
    write_project(
        wrangler.folder,
        {"src/entry.py": ENTRY},
        name="live",
        vars={"GREETING": greeting},
        kv_namespaces=bound,
    )


def ask(wrangler: Wrangler, path: str = "") -> httpx.Response:
    return httpx.get(f"{wrangler.url}/workers/{wrangler.account}/live/{path}", timeout=PATIENCE_S)


def assert_becomes_live(wrangler: Wrangler, expected: str) -> None:
    """Ask until the answer is what it should be."""
    until_s = time.monotonic() + LIVE_WITHIN_S
    while (answer := ask(wrangler).text) != expected:
        assert time.monotonic() < until_s, answer


@contextmanager
def tailing(wrangler: Wrangler) -> Iterator[subprocess.Popen[str]]:
    """Tail the worker; the block begins when wrangler listens."""
    with subprocess.Popen(
        wrangler.command("tail", "live", "--format", "pretty"),
        cwd=wrangler.folder,
        env=wrangler.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        watchdog = threading.Timer(PATIENCE_S, process.kill)
        watchdog.start()
        try:
            read_until(process, "waiting for logs")
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def read_until(process: subprocess.Popen[str], wanted: str) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if wanted in line:
            return lines
    raise AssertionError(f"no {wanted!r} in {lines}")


def test_what_is_deployed_answers_with_its_variables_and_secrets(wrangler: Wrangler) -> None:
    assert_becomes_live(wrangler, "hello, hush")


def test_a_worker_keeps_what_it_puts_and_wrangler_reads_it(wrangler: Wrangler) -> None:
    counted = [ask(wrangler, "count").text for _ in range(3)]

    (namespace,) = wrangler("kv", "namespace", "list").json
    at = ["--namespace-id", namespace["id"], "--remote", "--text"]
    assert counted == ["1", "2", "3"]
    assert wrangler("kv", "key", "get", "seen", *at).printed == "3\n"


def test_a_rollback_brings_the_version_before_back(wrangler: Wrangler) -> None:
    (namespace,) = wrangler("kv", "namespace", "list").json
    write(wrangler, "goodbye", namespace["id"])
    wrangler("deploy")
    assert_becomes_live(wrangler, "goodbye, hush")

    wrangler("rollback", "-y", "--message", "back")

    assert_becomes_live(wrangler, "hello, hush")


def test_a_tail_shows_what_is_printed_and_raised(wrangler: Wrangler) -> None:
    with tailing(wrangler) as process:
        assert ask(wrangler, "fail").status_code == 500
        shown = "".join(read_until(process, 'raise ValueError("as asked")'))

    assert "Exception Thrown" in shown
    assert "(log) asked for" in shown
    assert 'File "entry.py", line 12, in fetch' in shown


def test_the_models_are_listed(wrangler: Wrangler) -> None:
    assert "@cf/moonshotai/kimi-k2.6" in wrangler("ai", "models").output


def test_an_error_at_start_up_is_told_with_file_and_line(
    wrangler: Wrangler, tmp_path: Path
) -> None:
    write_project(tmp_path, {"src/entry.py": "import util\n", "src/util.py": "\n1 / 0\n"}, name="x")
    broken = Wrangler(
        url=wrangler.url,
        account=wrangler.account,
        token=wrangler.token,
        folder=tmp_path,
        home=wrangler.home,
    )

    refused = broken.run("deploy")

    assert refused.status != 0
    assert "util.py:2: ZeroDivisionError" in refused.output
