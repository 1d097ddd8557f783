"""What a tenant and what the operator get of a worker that ran in a real `workerctl dev`."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.collectors import Collector, a_collector, attributes_of
from support.dev_workers import ACCOUNT, dev_workers

pytestmark = pytest.mark.isolates

TALKS = """
import sys

class Default(WorkerEntrypoint):
    async def fetch(self, request):
        print("a line")
        print("a complaint", file=sys.stderr)
        raise ValueError("out of luck")
"""


def tenants_file(folder: Path, *, logs: Collector, traces: Collector) -> str:
    file = folder / "tenants.toml"
    file.write_text(
        f'[tenants.{ACCOUNT}]\nlogs = "{logs.url}/v1/logs"\nendpoint = "{traces.url}/v1/traces"\n'
    )
    return str(file)


def test_a_workers_log_is_at_its_tenants_collector_and_the_rest_at_the_operators(
    tmp_path: Path,
) -> None:
    with a_collector() as logs, a_collector() as traces, a_collector() as operator:
        variables = {
            "TENANTRY_TENANT_TRACES": tenants_file(tmp_path, logs=logs, traces=traces),
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": operator.url,
        }
        with dev_workers(tmp_path, variables) as workers:
            workers.deploy("talks", TALKS)
            assert workers.get("talks").status_code == 500
            workers.server.interrupt()
            assert workers.server.wait_for_end() == 0
        told = [(each.body.string_value.split("?")[0], each.severity_text) for each in logs.records]
        assert told[1:] == [
            ("a line", "INFO"),
            ("a complaint", "ERROR"),
            ("ValueError: out of luck", "ERROR"),
        ]
        assert told[0][0].startswith("GET http://talks.dev.localhost")
        [span] = [each for each in traces.spans if each.name == "GET talks"]
        assert {(each.trace_id, each.span_id) for each in logs.records} == {
            (span.trace_id, span.span_id)
        }
        for record in logs.records:
            assert attributes_of(record)["tenantry.worker.outcome"] == "exception"
        services = {
            attributes_of(source)["service.name"] for source, _ in operator.records_by_source
        }
        assert services == {"tenantry-edge", "tenantry-node"}
        said = [record.body.string_value for record in operator.records]
        assert not [each for each in said if "a line" in each or "out of luck" in each]


ADDS = """
class Default(WorkerEntrypoint):
    async def add(self, a, b):
        print("adding")
        return a + b

    async def fetch(self, request):
        return Response("seven")
"""

ASKS = """
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        response = await self.env.ADDS.fetch("http://any/")
        return Response(f"{await self.env.ADDS.add(3, 4)} {await response.text()}")
"""


def test_workers_that_call_each_other_are_one_trace(tmp_path: Path) -> None:
    with a_collector() as logs, a_collector() as traces:
        variables = {"TENANTRY_TENANT_TRACES": tenants_file(tmp_path, logs=logs, traces=traces)}
        with dev_workers(tmp_path, variables) as workers:
            workers.deploy("adds", ADDS)
            service = {"type": "service", "name": "ADDS", "service": "adds"}
            workers.deploy("asks", ASKS, [service])
            assert workers.get("asks").text == "7 seven"
            workers.server.interrupt()
            assert workers.server.wait_for_end() == 0
        names = {span.span_id: span.name for span in traces.spans}
        parents = sorted((span.name, names.get(span.parent_span_id)) for span in traces.spans)
        [line] = [each for each in logs.records if each.body.string_value == "adding"]
        assert names[line.span_id] == "rpc adds"
    assert parents == [
        ("GET adds", "call adds"),
        ("GET asks", None),
        ("call adds", "GET asks"),
        ("call adds", "GET asks"),
        ("rpc adds", "call adds"),
    ]
