"""`/ai/models/schema`, `/ai/tasks/search`, `/ai/authors/search`."""

from __future__ import annotations

import uuid

import jsonschema
import msgspec
import pytest

from support.edges import ACCOUNT, State, an_edge
from support.plain_text import GLM, KIMI, an_offer
from support.requests import USER
from support.token_source import FakeTokenSource

AI = f"/client/v4/accounts/{ACCOUNT}/ai"
OLDER = msgspec.structs.replace(GLM, result_shape="response")


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["kimi-k2.6", KIMI.id])
async def test_a_models_schemas_say_what_it_takes_and_answers(state: State, name: str) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        schema = (await edge.get(f"{AI}/models/schema", model=name)).json()["result"]

    jsonschema.validate({"messages": [USER], "max_tokens": 5}, schema["input"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"messages": [USER], "max_tokens": 0}, schema["input"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"messages": [USER], "unknown": 0}, schema["input"])
    assert schema["output"]["$ref"].endswith("/Completion")


@pytest.mark.asyncio
async def test_a_schema_is_of_the_form_that_the_model_answers_in(state: State) -> None:
    async with an_edge(state, FakeTokenSource(), offers=[an_offer(OLDER)]) as edge:
        schema = (await edge.get(f"{AI}/models/schema", model=GLM.id)).json()["result"]

    assert schema["output"]["$ref"].endswith("/FlatResult")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("query", "code"), [({}, 5006), ({"model": ""}, 5006), ({"model": "gpt-4o"}, 5007)], ids=str
)
async def test_a_schema_is_of_a_model_that_there_is(
    state: State, query: dict[str, str], code: int
) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        response = await edge.get(f"{AI}/models/schema", **query)

    assert response.status_code == 400
    assert response.json()["errors"][0]["code"] == code


@pytest.mark.asyncio
async def test_there_is_one_task(state: State) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        [task] = (await edge.get(f"{AI}/tasks/search")).json()["result"]

    assert task["name"] == "Text Generation"
    assert task["id"] == "c329a1f9-323d-4e91-b2aa-582dd4188d34"


@pytest.mark.asyncio
async def test_authors_are_those_of_the_models_each_once(state: State) -> None:
    unsigned = msgspec.structs.replace(KIMI, id="mine", aliases=())
    other = msgspec.structs.replace(KIMI, id="@cf/moonshotai/kimi-k2.5", aliases=())
    offers = [an_offer(entry) for entry in (KIMI, other, unsigned, GLM)]
    async with an_edge(state, FakeTokenSource(), offers=offers) as edge:
        authors = (await edge.get(f"{AI}/authors/search")).json()["result"]

    assert [author["name"] for author in authors] == ["moonshotai", "zai-org"]
    assert all(str(uuid.UUID(author["id"])) == author["id"] for author in authors)


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["models/schema", "tasks/search", "authors/search"])
async def test_a_token_of_the_account_is_needed(state: State, path: str) -> None:
    headers = {"authorization": f"Bearer {state.other_token}"}
    async with an_edge(state, FakeTokenSource()) as edge, edge.client() as client:
        response = await client.get(f"{AI}/{path}", headers=headers)

    assert response.status_code == 403
