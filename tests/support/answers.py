"""What a server of the API sends, written out as the API's documentation has it."""

from __future__ import annotations

from typing import Any

import httpx


def a_completion(content: str | None = "42", **message: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "@cf/moonshotai/kimi-k2.6",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": content,
                    "refusal": None,
                    "reasoning": None,
                    **message,
                },
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": a_usage(),
        "system_fingerprint": None,
    }


def a_usage(*, cached: int = 3, reasoning: int = 2) -> dict[str, Any]:
    return {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def a_chunk(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "@cf/moonshotai/kimi-k2.6",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}],
    }


def a_usage_chunk() -> dict[str, Any]:
    return {**a_chunk(), "choices": [], "usage": a_usage()}


def a_model(name: str = "@cf/moonshotai/kimi-k2.6", **properties: Any) -> dict[str, Any]:
    return {
        "id": "f8703a00-ed54-4f98-bdc3-cd9a813286f3",
        "source": 1,
        "name": name,
        "description": "A model",
        "task": {
            "id": "c329a1f9-323d-4e91-b2aa-582dd4188d34",
            "name": "Text Generation",
            "description": "",
        },
        "created_at": "2026-04-20 00:00:00.000",
        "tags": [],
        "properties": [
            {"property_id": property_id, "value": value}
            for property_id, value in properties.items()
        ],
    }


def an_envelope(result: Any, **fields: Any) -> httpx.Response:
    body = {"result": result, "success": True, "errors": [], "messages": [], **fields}
    return httpx.Response(200, json=body)


def an_error(
    status: int, code: int | None = None, message: str = "it failed", **headers: str
) -> httpx.Response:
    entry = {"message": message} if code is None else {"code": code, "message": message}
    return httpx.Response(
        status,
        json={"errors": [entry], "success": False, "result": {}, "messages": []},
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def an_event_stream(*events: str) -> httpx.Response:
    """Each event as it stands after `data: `."""
    return httpx.Response(
        200,
        headers={"content-type": "text/event-stream; charset=utf-8", "x-request-id": "req-7"},
        content="".join(f"data: {event}\n\n" for event in events),
    )
