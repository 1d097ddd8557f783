"""The whole system and a real backend for traces: one request of a worker that streams tool calls of both
models is one trace there, from the client's own span to the decode step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from support.clients import MODELS
from support.dev_server import LAST_LINE, DevServer, a_dev_server
from support.dev_workers import ACCOUNT, DevWorkers
from support.phoenix import Phoenix, a_phoenix, names_of

pytestmark = pytest.mark.browser

PATIENCE_S = 600.0

AI = {"type": "ai", "name": "AI"}

TRACE_ID, CLIENT_SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
QUESTION = "What is the weather in the harbor of Valparaiso?"
SESSION = "ses_of_a_person"
PRINTED = "said by the worker itself"

WORKER = f"""
import json

TOOL = {{
    "type": "function",
    "function": {{
        "name": "get_weather",
        "description": "Get the weather of a place",
        "parameters": {{
            "type": "object",
            "properties": {{"place": {{"type": "string"}}}},
            "required": ["place"],
        }},
    }},
}}


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        answered = {{}}
        print({PRINTED!r})
        for model in {MODELS!r}:
            stream = await self.env.AI.run(model, {{
                "messages": [{{"role": "user", "content": {QUESTION!r}}}],
                "tools": [TOOL],
                "tool_choice": "required",
                "stream": True,
                "temperature": 0,
                "max_tokens": 300,
            }})
            text = b"".join([piece async for piece in stream]).decode()
            answered[model] = text
        return Response(json.dumps(answered))
"""

OF_A_MODEL = {
    "tokenize": 1,
    "admit": 1,
    "compile grammar": 1,
    "route": 2,
    "reserve": 1,
    "queue": 1,
    "prefill": 1,
    "hand-off": 1,
    "decode": 1,
}


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    with a_phoenix(tmp_path_factory.mktemp("phoenix")) as phoenix:
        yield phoenix


@pytest.fixture(scope="module")
def workers(phoenix: Phoenix, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevWorkers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", phoenix.traces_endpoint)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        folder = tmp_path_factory.mktemp("dev")
        with a_dev_server(folder, pools=True, patience_s=PATIENCE_S) as server:
            server.wait_for_line(LAST_LINE)
            with control_plane(server) as control:
                workers = DevWorkers(server=server, control=control)
                workers.deploy("tools", WORKER, [AI])
                yield workers


@contextmanager
def control_plane(server: DevServer) -> Iterator[httpx.Client]:
    credentials = server.credentials
    with httpx.Client(
        base_url=f"{credentials.base_url}/accounts/{ACCOUNT}/",
        headers={"authorization": f"Bearer {credentials.api_token}"},
        timeout=60,
    ) as control:
        yield control


def run_worker(workers: DevWorkers, **headers: str) -> dict[str, str]:
    response = workers.get("tools", headers=headers)
    assert response.status_code == 200, response.text
    answered: dict[str, str] = response.json()
    return answered


@pytest.fixture(scope="module")
def spans(phoenix: Phoenix, workers: DevWorkers) -> list[dict[str, Any]]:
    answered = run_worker(
        workers,
        traceparent=f"00-{TRACE_ID}-{CLIENT_SPAN_ID}-01",
        **{"x-session-affinity": SESSION},
    )
    for model in MODELS:
        *events, done = [
            line[6:] for line in answered[model].splitlines() if line.startswith("data: ")
        ]
        assert done == "[DONE]"
        deltas = [json.loads(event)["choices"] for event in events]
        assert any(choices and choices[0]["delta"].get("tool_calls") for choices in deltas)
    return phoenix.spans(TRACE_ID, 1 + 2 * (1 + sum(OF_A_MODEL.values())))


def the_children(spans: list[dict[str, Any]], parent: dict[str, Any]) -> list[dict[str, Any]]:
    return [span for span in spans if span["parent_id"] == parent["context"]["span_id"]]


def the_span(spans: list[dict[str, Any]], name: str) -> dict[str, Any]:
    [span] = [span for span in spans if span["name"] == name]
    return span


def test_one_trace_goes_from_the_clients_span_to_the_decode_step(
    spans: list[dict[str, Any]],
) -> None:
    worker = the_span(spans, "GET tools")
    assert worker["parent_id"] == CLIENT_SPAN_ID
    assert names_of(the_children(spans, worker)) == sorted(f"chat {model}" for model in MODELS)
    for model in MODELS:
        chat = the_span(spans, f"chat {model}")
        assert Counter(names_of(the_children(spans, chat))) == Counter(OF_A_MODEL)


def test_the_worker_is_named_with_its_version_and_outcome(spans: list[dict[str, Any]]) -> None:
    attributes = the_span(spans, "GET tools")["attributes"]
    assert attributes["tenantry.worker"] == "tools"
    assert attributes["tenantry.worker.outcome"] == "ok"
    assert len(attributes["tenantry.worker.version"]) == 36
    assert attributes["tenantry.tenant"] == ACCOUNT
    assert attributes["faas.coldstart"] is True


@pytest.mark.parametrize("model", MODELS)
def test_the_backend_reads_a_models_span_by_the_conventions(
    spans: list[dict[str, Any]], model: str
) -> None:
    chat = the_span(spans, f"chat {model}")
    # what Phoenix makes of the GenAI names is its own
    assert chat["span_kind"] == "LLM"
    attributes = chat["attributes"]
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.provider.name"] == "tenantry"
    assert attributes["gen_ai.response.model"] == model
    assert attributes["gen_ai.usage.input_tokens"] > 50
    assert attributes["gen_ai.usage.output_tokens"] > 5
    assert attributes["llm.token_count.prompt"] == attributes["gen_ai.usage.input_tokens"]
    assert attributes["tenantry.pages.check"] == "passed"


@pytest.mark.parametrize("model", MODELS)
def test_pages_that_crossed_are_told_with_bytes_members_and_formats(
    spans: list[dict[str, Any]], model: str
) -> None:
    stages = the_children(spans, the_span(spans, f"chat {model}"))
    crossed = the_span(stages, "hand-off")["attributes"]
    assert crossed["tenantry.handoff.direction"] == "sent"
    assert crossed["tenantry.handoff.bytes"] > 0
    assert crossed["tenantry.handoff.pages"] > 0
    assert crossed["tenantry.prefill.member"] != crossed["tenantry.decode.member"]
    assert crossed["tenantry.decode.formats"].count("/") == 1
    reserved = the_span(stages, "reserve")["attributes"]
    assert reserved["tenantry.reserve.pages"] == crossed["tenantry.handoff.pages"]
    decode = the_span(stages, "decode")["attributes"]
    assert decode["tenantry.decode.steps"] > 5


def test_nothing_of_what_was_said_and_no_session_is_in_the_trace(
    spans: list[dict[str, Any]],
) -> None:
    told = json.dumps(spans)
    assert "Valparaiso" not in told
    assert SESSION not in told


def test_what_a_worker_prints_is_in_its_own_log_with_the_trace_and_in_no_other(
    spans: list[dict[str, Any]], workers: DevWorkers
) -> None:
    [record, *_] = workers.records("tools")
    assert PRINTED in json.dumps(record)
    assert TRACE_ID in json.dumps(record)
    assert PRINTED not in json.dumps(spans)
    logs = list((workers.server.state_dir / "logs").iterdir())
    assert logs
    for log in logs:
        assert PRINTED not in log.read_text()


def test_without_the_backend_all_is_served_as_before(
    spans: list[dict[str, Any]], phoenix: Phoenix, workers: DevWorkers
) -> None:
    phoenix.process.kill()
    phoenix.process.wait()
    for _ in range(3):
        for stream in run_worker(workers).values():
            assert stream.endswith("data: [DONE]\n\n")
            assert '"finish_reason":"tool_calls"' in stream
