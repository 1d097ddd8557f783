"""Prefill and decode in nodes of their own: as `dev --pools`, and from the sample's file over TLS."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from support.command_line import PROGRAM
from support.dev_server import LAST_LINE, a_dev_server, environment
from support.http_peer import an_unused_port
from support.processes import wait_until_gone
from support.supervised import a_process
from tenantry.credentials import Credentials, load_credentials, save_credentials

pytestmark = pytest.mark.cluster

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "cluster" / "one-machine.toml"

# fronts and step loops of two nodes, edge
NUM_PROCESSES = 5

QUESTION = {"prompt": "What is 17 + 25?", "temperature": 0}


def ask(credentials: Credentials, model: str) -> httpx.Response:
    url = f"{credentials.base_url}/accounts/{credentials.account_id}/ai/run/{model}"
    headers = {"Authorization": f"Bearer {credentials.api_token}"}
    response = httpx.post(url, headers=headers, json=QUESTION, timeout=60)
    assert response.status_code == 200, response.text
    return response


def make_certificate(folder: Path, name: str) -> None:
    arguments = ["node", "certificate", name, "--ca", "certificates", "--host", "127.0.0.1"]
    subprocess.run([sys.executable, "-c", PROGRAM, *arguments], cwd=folder, check=True)


@pytest.mark.asyncio
async def test_dev_with_pools_answers_and_ends_whole(tmp_path: Path) -> None:
    with a_dev_server(tmp_path, pools=True) as server:
        server.wait_for_line(LAST_LINE)
        pids = server.descendants(NUM_PROCESSES)
        for model in ("kimi-k2.6", "glm-5.2"):
            (choice,) = ask(server.credentials, model).json()["result"]["choices"]
            assert choice["message"]["content"].strip() == f"17 + 25 = {17 + 25}"
        server.interrupt()
        assert server.wait_for_end() == 0
    for pid in pids:
        await wait_until_gone(pid)


@pytest.mark.asyncio
async def test_the_sample_on_one_machine_serves_over_tls(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(
        re.sub(r"\b(8787|7001|7002)\b", lambda _: str(an_unused_port()), SAMPLE.read_text())
    )
    for name in ("edge", "prefill", "decode"):
        make_certificate(tmp_path, name)

    env = environment(tmp_path)
    with a_process(PROGRAM, "serve", str(file), "--grant", "demo", env=env) as served:
        served.wait_for_line("edge is ready")
        pids = served.descendants(NUM_PROCESSES)
        assert sum("(TLS)" in line for line in served.lines) == 2
        credentials = load_credentials(tmp_path / "config" / "credentials.json")
        assert credentials is not None
        response = ask(credentials, "kimi-k2.6")
        assert response.json()["result"]["usage"]["completion_tokens"] > 0
        member = response.headers["x-tenantry-member"]
        assert "prefill=" in member
        assert "decode=" in member
        served.interrupt()
        assert served.wait_for_end() == 0
    for pid in pids:
        await wait_until_gone(pid)


def test_a_start_that_fails_takes_no_credentials_from_another(tmp_path: Path) -> None:
    path = tmp_path / "config" / "credentials.json"
    others = Credentials(base_url="http://127.0.0.1:9/client/v4", account_id="dev", api_token="t")
    save_credentials(others, path)
    options = ["--port", str(an_unused_port()), "--state-dir", str(tmp_path / "state")]
    # no machine has so many
    arguments = ["dev", *options, "--device", "cuda:99"]
    with a_process(PROGRAM, *arguments, env=environment(tmp_path)) as served:
        assert served.wait_for_end() == 1
    assert any(line.startswith("Error:") for line in served.lines)
    assert load_credentials(path) == others
