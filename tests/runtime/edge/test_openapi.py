"""The API's document, and that the API is as it says: for whatever fits it, and for much that does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
import jsonschema
import pytest
import requests
import schemathesis
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, given, strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route

from support.edges import ACCOUNT, Edge, State, an_edge, make_state
from support.examples import examples
from support.openai_calls import BASES, call
from support.plain_text import ARGUMENTS, CALL, CALL_END, END, GLM, KIMI
from support.token_source import FakeTokenSource
from tenantry_runtime.edge.openapi import document

MODELS = [*KIMI.names, *GLM.names]
DOCUMENT = document(MODELS)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)]

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An edge on an event loop of its own."""

    edge: Edge
    portal: BlockingPortal

    # Any: operations of any kind of document
    def answer(self, case: Case[Any]) -> httpx.Response:
        if "account" in case.path_parameters:
            # others are refused, which says nothing of the rest
            case.path_parameters["account"] = ACCOUNT
        prepared = requests.Request(**case.as_transport_kwargs("http://edge")).prepare()
        return self.portal.call(self._send, prepared)

    async def _send(self, prepared: requests.PreparedRequest) -> httpx.Response:
        body = prepared.body
        assert body is None or isinstance(body, bytes | str)
        async with self.edge.client() as client:
            return await client.request(
                str(prepared.method),
                str(prepared.url),
                content=body,
                headers={**_text(prepared.headers), **self.edge.state.headers},
            )


def _text(headers: Mapping[str, str | bytes]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else value.decode("latin-1")
        for name, value in headers.items()
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # a store of its own: batches are kept in it
    state = anyio.run(make_state, tmp_path_factory.mktemp("openapi") / "state")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(an_edge(state, FakeTokenSource(f"42{END}"))) as edge,
    ):
        yield Server(edge=edge, portal=portal)


@pytest.mark.parametrize(
    ("operation", "mode"),
    [
        (operation, mode)
        for operation in OPERATIONS
        for mode in GenerationMode
        # there is nothing to get wrong where nothing is taken
        if mode is GenerationMode.POSITIVE or [*operation.query, *operation.body]
    ],
    ids=lambda value: getattr(value, "label", value),
)
@examples(0.2, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_answer_is_as_the_document_says(
    server: Server, operation: Any, mode: GenerationMode, data: st.DataObject
) -> None:
    case = data.draw(operation.as_strategy(mode))

    case.validate_response(server.answer(case), checks=CHECKS)


FULL: dict[str, dict[str, Any]] = {
    "chat/completions": {
        "n": 2,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "chat_template_kwargs": {"thinking": True},
    },
    "completions": {"n": 2, "echo": True},
    "responses": {"tools": [{"type": "function", "name": "f"}], "reasoning": {"effort": "high"}},
}


@pytest.mark.parametrize("script", [f"42{END}", f"{CALL}f{ARGUMENTS}{{}}{CALL_END}{END}"], ids=repr)
@pytest.mark.parametrize("route", list(FULL))
@pytest.mark.asyncio
async def test_a_whole_answer_fits_its_schema(state: State, route: str, script: str) -> None:
    async with an_edge(state, FakeTokenSource(script)) as edge:
        response = await call(edge, route, **FULL[route])

    assert response.status_code == 200
    answer = DOCUMENT["paths"][f"/v1/{route}"]["post"]["responses"]["200"]["content"]
    schema = {**answer["application/json"]["schema"], "components": DOCUMENT["components"]}
    jsonschema.validate(response.json(), schema, cls=jsonschema.Draft202012Validator)


def test_the_document_has_every_route(server: Server) -> None:
    routes = {
        (route.path.replace(":path}", "}"), method.lower())
        for route in server.edge.app.routes
        if isinstance(route, Route)
        for method in (route.methods or {"POST"})
        if method != "HEAD"
    }

    documented = {(path, method) for path, item in DOCUMENT["paths"].items() for method in item}
    assert documented == routes


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path", ["/openapi.json", f"/client/v4/accounts/{ACCOUNT}/ai/openapi.json"]
)
async def test_the_document_is_served_with_the_models_on_offer(state: State, path: str) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        served = (await edge.get(path)).json()

    assert served == DOCUMENT
    parameters = served["paths"]["/v1/models/{model}"]["get"]["parameters"]
    assert parameters[0]["schema"]["enum"] == MODELS


@pytest.mark.parametrize("name", sorted(DOCUMENT["components"]["schemas"]))
def test_every_schema_is_a_json_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(DOCUMENT["components"]["schemas"][name])


@pytest.mark.parametrize("base", BASES)
def test_bodies_are_described_by_the_types_that_read_them(base: str) -> None:
    path = base.replace(ACCOUNT, "{account}")
    body = DOCUMENT["paths"][f"{path}/chat/completions"]["post"]["requestBody"]
    reference = body["content"]["application/json"]["schema"]["$ref"]
    schema = DOCUMENT["components"]["schemas"][reference.rpartition("/")[2]]

    assert schema["required"] == ["model"]
    assert schema["additionalProperties"] is False
    # 3.2 of what Workers AI takes
    assert {"messages", "tools", "tool_choice", "response_format", "logit_bias", "n"} <= set(
        schema["properties"]
    )
