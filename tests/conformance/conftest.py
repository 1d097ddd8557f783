"""Real clients, unmodified, against `workerctl dev`: one server for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients import MODELS, AskClient, ask_client
from support.dev_server import LAST_LINE, DevServer, a_dev_server

# of the whole suite, which takes a tenth of it
PATIENCE_S = 600.0


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    folder = tmp_path_factory.mktemp("conformance")
    with a_dev_server(folder, patience_s=PATIENCE_S) as server:
        server.wait_for_line(LAST_LINE)
        yield server


@pytest.fixture(scope="module", params=MODELS)
def client(server: DevServer, request: pytest.FixtureRequest) -> AskClient:
    """What runs the scenarios of a client, with each of the models in turn."""
    return lambda program: ask_client(program, request.param, server.credentials)
