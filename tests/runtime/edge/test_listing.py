"""`/ai/models/search`."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import msgspec
import pytest

from support.edges import SEARCH, State, an_edge
from support.plain_text import GLM, KIMI, an_offer
from support.token_source import FakeTokenSource
from tenantry_runtime.catalog import Prices, load_catalog

PRICED = msgspec.structs.replace(KIMI, prices=Prices(input=0.95, cached_input=0.16, output=4.0))


async def search(state: State, **query: str) -> httpx.Response:
    offers = [an_offer(PRICED, context_tokens=262144), an_offer(GLM)]
    async with an_edge(state, FakeTokenSource(), offers=offers) as edge:
        return await edge.get(SEARCH, **query)


def names(response: httpx.Response) -> list[str]:
    return [model["name"] for model in response.json()["result"]]


@pytest.mark.asyncio
async def test_all_models_are_listed_in_the_envelope(state: State) -> None:
    response = await search(state)

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    envelope = response.json()
    assert names(response) == [KIMI.id, GLM.id]
    assert envelope["success"] is True
    assert envelope["result_info"] == {"page": 1, "per_page": 50, "count": 2, "total_count": 2}


@pytest.mark.asyncio
async def test_a_model_is_described_as_on_its_page(state: State) -> None:
    [model, _] = (await search(state)).json()["result"]

    properties: dict[str, Any] = {p["property_id"]: p["value"] for p in model["properties"]}
    assert properties == {
        "context_window": "262144",
        "price": [
            {"unit": "per M input tokens", "price": 0.95, "currency": "USD"},
            {"unit": "per M output tokens", "price": 4.0, "currency": "USD"},
            {"unit": "per M cached input tokens", "price": 0.16, "currency": "USD"},
        ],
        "function_calling": "true",
        "reasoning": "true",
        "aliases": ["kimi-k2.6"],
    }
    assert model["source"] == 1
    assert model["task"]["name"] == "Text Generation"
    assert model["task"]["id"] == "c329a1f9-323d-4e91-b2aa-582dd4188d34"
    assert str(uuid.UUID(model["id"])) == model["id"]


@pytest.mark.asyncio
async def test_the_efforts_of_the_built_in_models_are_an_object(state: State) -> None:
    offers = [an_offer(entry) for entry in load_catalog().entries]
    async with an_edge(state, FakeTokenSource(), offers=offers) as edge:
        [_, glm] = (await edge.get(SEARCH)).json()["result"]

    [effort] = [p["value"] for p in glm["properties"] if p["property_id"] == "reasoning_effort"]
    assert effort["supported_efforts"] == ["max", "high", "none"]
    assert effort["normalizes_to"]["low"] == "high"
    assert effort["mandatory"] is False


@pytest.mark.asyncio
async def test_an_id_is_the_same_on_every_call(state: State) -> None:
    first, second = await search(state), await search(state)

    assert first.json() == second.json()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"search": "KIMI"}, [KIMI.id]),
        ({"search": "glm-5.2"}, [GLM.id]),
        ({"search": "llama"}, []),
        ({"author": "zai-org"}, [GLM.id]),
        ({"author": "Moonshotai"}, [KIMI.id]),
        ({"author": "zai"}, []),
        ({"task": "Text Generation"}, [KIMI.id, GLM.id]),
        ({"task": "Text-to-Image"}, []),
        ({"source": "1"}, [KIMI.id, GLM.id]),
        ({"source": "2"}, []),
        ({"hide_experimental": "true"}, [KIMI.id, GLM.id]),
    ],
    ids=str,
)
async def test_a_query_filters(state: State, query: dict[str, str], expected: list[str]) -> None:
    assert names(await search(state, **query)) == expected


@pytest.mark.asyncio
async def test_a_page_is_a_part_of_the_list(state: State) -> None:
    response = await search(state, page="2", per_page="1")

    assert names(response) == [GLM.id]
    assert response.json()["result_info"] == {
        "page": 2,
        "per_page": 1,
        "count": 1,
        "total_count": 2,
    }


@pytest.mark.asyncio
async def test_the_page_after_the_last_is_empty(state: State) -> None:
    # wrangler asks for pages until one is empty
    response = await search(state, page="3", per_page="1")

    assert response.json()["result"] == []
    assert response.json()["result_info"]["count"] == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["page", "per_page"])
@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "٣", "9" * 100, ""])
async def test_a_page_that_is_no_number_is_refused(state: State, name: str, value: str) -> None:
    response = await search(state, **{name: value})

    assert response.status_code == 400
    [error] = response.json()["errors"]
    assert error["code"] == 5006
    assert name in error["message"]


@pytest.mark.asyncio
async def test_a_list_needs_a_token_of_the_account(state: State) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        transport = httpx.ASGITransport(edge.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://edge") as client:
            without = await client.get(SEARCH)
            other = await client.get(
                SEARCH, headers={"authorization": f"Bearer {state.other_token}"}
            )

    assert (without.status_code, without.json()["errors"][0]["code"]) == (401, 10000)
    assert (other.status_code, other.json()["errors"][0]["code"]) == (403, 10000)
