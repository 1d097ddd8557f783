"""Both model families behind an edge: their own text layers, and nodes that say what a test has written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import msgspec

from support.edges import RUN, Edge
from support.plain_text import GLM, KIMI
from support.requests import a_body
from support.text import GLM_NANO, KIMI_NANO, a_text_model, ids_of
from support.token_source import FakeTokenSource
from tenantry_runtime.catalog import CatalogEntry
from tenantry_runtime.edge.constrained import Grammars
from tenantry_runtime.edge.offer import Offer
from tenantry_runtime.text import Constraints, TextModel

FAMILIES: Mapping[str, TextModel] = {
    KIMI.id: a_text_model(KIMI_NANO),
    GLM.id: a_text_model(GLM_NANO),
}
"""By the model's id in the catalog."""

MODELS = sorted(FAMILIES)
CONTEXT_TOKENS = 4096

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


def family_offers() -> list[Offer]:
    return [
        Offer(
            entry=_calling(entry),
            text=FAMILIES[entry.id],
            context_tokens=CONTEXT_TOKENS,
            grammars=Grammars(Constraints(FAMILIES[entry.id])),
        )
        for entry in (KIMI, GLM)
    ]


def written(
    text: TextModel,
    reasoning: str | None,
    content: str,
    calls: Sequence[tuple[str, Mapping[str, Any]]] = (),
    *,
    num_before: int = 0,
) -> list[int]:
    """Write an answer as the model was trained to, with the token that ends its turn.

    Kimi numbers its calls over the whole conversation, `num_before` of them before this answer.
    `reasoning` is None where the prompt asks for none.
    """
    said = [] if reasoning is None else [*spoken(text, reasoning), *ids_of(text, "</think>")]
    said += spoken(text, content)
    if text.family == "kimi":
        return said + _kimi_calls(text, calls, num_before) + ids_of(text, "<|im_end|>")
    return said + _glm_calls(text, calls) + ids_of(text, "<|observation|>" if calls else "<|user|>")


def spoken(text: TextModel, said: str) -> list[int]:
    """Tokenize what is text, whatever it looks like."""
    return text.tokenizer.encode(said)


def one_by_one(token_ids: Sequence[int]) -> list[list[int]]:
    """Make each token a step of its own."""
    return [[token_id] for token_id in token_ids]


def a_node(*token_ids: int, cached_tokens: int = 0) -> FakeTokenSource:
    """Make a node that says these, a token in each step."""
    return FakeTokenSource(*one_by_one(token_ids), cached_tokens=cached_tokens)


async def post(edge: Edge, model: str, **fields: Any) -> httpx.Response:
    async with edge.client() as client:
        return await client.post(RUN.replace("kimi-k2.6", model), content=a_body(**fields))


async def ask(edge: Edge, model: str, **fields: Any) -> Any:
    """Return the one choice of a whole answer."""
    response = await post(edge, model, **fields)
    assert response.status_code == 200, response.text
    [choice] = response.json()["result"]["choices"]
    return choice


def _calling(entry: CatalogEntry) -> CatalogEntry:
    return msgspec.structs.replace(entry, capabilities=("function_calling", "reasoning"))


def _kimi_calls(
    text: TextModel, calls: Sequence[tuple[str, Mapping[str, Any]]], num_before: int
) -> list[int]:
    if not calls:
        return []
    said = ids_of(text, "<|tool_calls_section_begin|>")
    for number, (name, arguments) in enumerate(calls, num_before):
        said += [*ids_of(text, "<|tool_call_begin|>"), *spoken(text, f"functions.{name}:{number}")]
        said += ids_of(text, "<|tool_call_argument_begin|>")
        said += spoken(text, json.dumps(arguments, ensure_ascii=False))
        said += ids_of(text, "<|tool_call_end|>")
    return said + ids_of(text, "<|tool_calls_section_end|>")


def _glm_calls(text: TextModel, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[int]:
    said: list[int] = []
    for name, arguments in calls:
        said += [*ids_of(text, "<tool_call>"), *spoken(text, name)]
        for key, value in arguments.items():
            raw = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            said += [*ids_of(text, "<arg_key>"), *spoken(text, key), *ids_of(text, "</arg_key>")]
            said += [
                *ids_of(text, "<arg_value>"),
                *spoken(text, raw),
                *ids_of(text, "</arg_value>"),
            ]
        said += ids_of(text, "</tool_call>")
    return said
