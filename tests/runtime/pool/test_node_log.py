"""A node's log at a collector: its front's records and its step loop's, from real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from support.collectors import (
    Collector,
    a_collector,
    a_hanging_collector,
    a_refusing_collector,
    attributes_of,
)
from support.fake_loop import FAIL, RAISE, FakeLoopConfig
from support.fake_node import PATIENCE_S, FakeNode, a_node, a_submit, start_process
from tenantry_runtime.core import FinishReason
from tenantry_runtime.errors import GenerationFailed
from tenantry_runtime.pool.client import NodeClient, connect
from tenantry_runtime.pool.messages import Submit
from tenantry_runtime.pool.node import LOOP_DIED, STOPPED, UNUSABLE

LOGS = "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"
TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"

pytestmark = pytest.mark.asyncio


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with a_collector() as server:
        monkeypatch.setenv(LOGS, server.url)
        yield server


async def ended(node: FakeNode) -> int:
    with anyio.fail_after(PATIENCE_S):
        return await node.process.wait()


async def ask(client: NodeClient, submit: Submit) -> FinishReason | None:
    with anyio.fail_after(PATIENCE_S):
        await client.ready()
        async with client.generate(submit) as sequence:
            async for tokens in sequence:
                if tokens.finish is not None:
                    return tokens.finish
    return None


def said(collector: Collector) -> list[str]:
    return [record.body.string_value for record in collector.records]


async def test_front_and_step_loop_are_at_the_collector_under_the_nodes_name(
    tmp_path: Path, collector: Collector
) -> None:
    async with a_node(tmp_path) as node, connect(node.address) as client:
        await ask(client, a_submit())
        node.process.terminate()
        assert await ended(node) == STOPPED
    assert [message.split(" after")[0] for message in said(collector)] == [
        "serving @cf/fake/counter (decode)",
        "stopping on SIGTERM",
    ]
    sources = [attributes_of(resource) for resource, _ in collector.records_by_source]
    assert {(each["service.name"], each["service.instance.id"]) for each in sources} == {
        ("tenantry-node", node.address)
    }


async def test_a_record_about_a_request_names_it_and_its_span(
    tmp_path: Path, collector: Collector
) -> None:
    submit = replace(a_submit("r-1", prompt=[FAIL]), traceparent=TRACEPARENT)
    async with a_node(tmp_path) as node, connect(node.address) as client:
        with pytest.raises(GenerationFailed):
            await ask(client, submit)
    [record] = [each for each in collector.records if each.body.string_value == "asked to fail"]
    assert (record.trace_id.hex(), record.span_id.hex()) == ("a" * 32, "b" * 16)
    assert attributes_of(record)["tenantry.request"] == "r-1"
    assert record.severity_text == "ERROR"


async def test_what_ends_a_step_loop_is_told_before_the_node_ends(
    tmp_path: Path, collector: Collector
) -> None:
    async with a_node(tmp_path) as node, connect(node.address) as client:
        with pytest.raises(GenerationFailed):
            await ask(client, a_submit(prompt=[RAISE]))
        assert await ended(node) == LOOP_DIED
    [failed] = [each for each in collector.records if "failed" in each.body.string_value]
    seen = attributes_of(failed)
    assert (seen["exception.type"], seen["exception.message"]) == ("RuntimeError", "asked to raise")
    assert "fake_loop.py" in str(seen["exception.stacktrace"])
    assert said(collector)[-1] == "the step loop exited with code 1"


async def test_a_node_that_cannot_serve_says_why_at_the_collector(
    tmp_path: Path, collector: Collector
) -> None:
    async with a_node(tmp_path, FakeLoopConfig(problem="no such model")) as node:
        assert await ended(node) == UNUSABLE
    assert said(collector) == ["no such model"]


@pytest.mark.parametrize(
    ("module", "config", "problem"),
    [
        (
            "support.fake_node",
            {"address": "unix:/nowhere/node.sock", "engine": {}},
            "cannot listen",
        ),
        ("tenantry_runtime.edge", {"nodes": []}, "nodes"),
    ],
    ids=["node", "edge"],
)
async def test_what_makes_a_start_impossible_is_told_at_the_collector(
    tmp_path: Path,
    collector: Collector,
    module: str,
    config: dict[str, object],
    problem: str,
) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(msgspec.json.encode(config))
    async with start_process(module, str(file)) as process:
        with anyio.fail_after(PATIENCE_S):
            assert await process.wait() == UNUSABLE
    assert problem in said(collector)[-1]


@pytest.mark.parametrize("how", [a_hanging_collector, a_refusing_collector])
async def test_a_collector_that_is_no_good_holds_up_neither_answers_nor_the_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: Callable[[], AbstractContextManager[str]],
) -> None:
    with how() as url:
        monkeypatch.setenv(LOGS, url)
        # with a batch of one, the first record is on its way while answers are asked for
        monkeypatch.setenv("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "1")
        async with a_node(tmp_path) as node, connect(node.address) as client:
            for number in range(20):
                with pytest.raises(GenerationFailed):
                    await ask(client, a_submit(f"fails-{number}", prompt=[FAIL]))
            assert await ask(client, a_submit("answered")) is FinishReason.LENGTH
            node.process.terminate()
            assert await ended(node) == STOPPED
