"""Requests that share a real node's steps: their spans say so, each in its own trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.collectors import Collector, a_collector, attributes_of
from support.dev_server import LAST_LINE, DevServer, a_dev_server
from support.endless_model import NAME, a_catalog_of_an_endless_model

ASKED = {"prompt": "Go on.", "temperature": 0, "stream": True}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with a_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.url)
        yield collector


def client_of(server: DevServer) -> httpx.Client:
    credentials = server.credentials
    return httpx.Client(
        base_url=f"{credentials.base_url}/accounts/{credentials.account_id}/",
        headers={"authorization": f"Bearer {credentials.api_token}"},
        timeout=60,
    )


def test_a_decode_span_links_to_those_that_shared_its_last_step(
    collector: Collector, tmp_path: Path
) -> None:
    catalog = a_catalog_of_an_endless_model(tmp_path)
    with a_dev_server(tmp_path, catalog=catalog) as server:
        server.wait_for_line(LAST_LINE)
        with client_of(server) as client:
            long = {**ASKED, "max_tokens": 2000}
            with client.stream("POST", f"ai/run/{NAME}", json=long) as response:
                assert response.status_code == 200
                # it has a token, so it is in every batch from here on, as long as somebody reads
                pieces = response.iter_bytes()
                next(pieces)
                short = client.post(f"ai/run/{NAME}", json={**ASKED, "max_tokens": 20})
                assert short.text.endswith("data: [DONE]\n\n")
        server.interrupt()
        server.wait_for_end()
    roots = [span for span in collector.spans if span.name == f"text_completion {NAME}"]
    of_short, of_long = (
        next(root for root in roots if attributes_of(root)["gen_ai.request.max_tokens"] == limit)
        for limit in (20, 2000)
    )
    [decode] = [
        span
        for span in collector.spans
        if span.name == "decode" and span.trace_id == of_short.trace_id
    ]
    [link] = decode.links
    assert (link.trace_id, link.span_id) == (of_long.trace_id, of_long.span_id)
    seen = attributes_of(decode)
    assert seen["tenantry.decode.steps"] == 19
    # two rows a step, but for a step in which the other one waits
    assert 1.5 < float(str(seen["tenantry.decode.mean_batch"])) <= 2
