"""The network's place in users' tests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import httpx

from ._config import Config, resolve_config

# Any: JSON, as a server would send it
MockReply: TypeAlias = str | Mapping[str, Any] | Sequence[Mapping[str, Any]] | httpx.Response


class MockTransport(httpx.MockTransport):
    """Answers calls from a function, so that code which uses `AI` or `AsyncAI` needs no server.

        def answer(request: httpx.Request) -> str:
            assert json.loads(request.content)["prompt"] == "ping"
            return "pong"

        with AI(transport=MockTransport(answer)) as ai:
            assert ai.run("kimi-k2.6", {"prompt": "ping"}).text == "pong"

    No configuration is read: the account is `mock`. What the function returns is

    | a | becomes |
    |---|---|
    | `str` | an answer of that text, whole or in chunks of a word, whichever was asked for |
    | mapping | the `result` of a call that does not stream |
    | sequence of mappings | the chunks of a stream, with `[DONE]` after them; the list of `models()` |
    | `httpx.Response` | itself: an error, `httpx.Response(429, json={"errors": [{"code": 3040}]})` |

    It may raise an `httpx.ConnectError` or `httpx.ReadTimeout` too. Give the client
    `sleep=lambda seconds: None` where failures are tried again.
    """

    def __init__(self, handler: Callable[[httpx.Request], MockReply]) -> None:
        super().__init__(lambda request: _response(request, handler(request)))


def configure_for(
    transport: object, base_url: str | None, account_id: str | None, api_token: str | None
) -> Config:
    """Resolve a client's configuration; a `MockTransport` needs none and reads none."""
    if not isinstance(transport, MockTransport):
        return resolve_config(base_url=base_url, account_id=account_id, api_token=api_token)
    return resolve_config(
        base_url=base_url or "http://mock.invalid/client/v4",
        account_id=account_id or "mock",
        api_token=api_token or "mock",
    )


def _response(request: httpx.Request, reply: MockReply) -> httpx.Response:
    is_stream = request.headers.get("accept") == "text/event-stream"
    if isinstance(reply, httpx.Response):
        return reply
    if isinstance(reply, str):
        reply = _text_chunks(request, reply) if is_stream else _text_completion(request, reply)
    if not is_stream:
        return _envelope(reply)
    if isinstance(reply, Mapping):
        raise TypeError("a streamed call was answered with a mapping; return a list of chunks")
    return _event_stream(reply)


def _envelope(result: object) -> httpx.Response:
    body: dict[str, object] = {"result": result, "success": True, "errors": [], "messages": []}
    return httpx.Response(200, json=body)


def _event_stream(chunks: Sequence[Mapping[str, Any]]) -> httpx.Response:
    events = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
    return httpx.Response(
        200,
        headers={"content-type": "text/event-stream"},
        content="".join(f"data: {event}\n\n" for event in events),
    )


def _text_completion(request: httpx.Request, text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "mock",
        "object": "chat.completion",
        "created": 0,
        "model": _model(request),
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": _usage(text),
    }


def _text_chunks(request: httpx.Request, text: str) -> list[dict[str, Any]]:
    def chunk(choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": "mock",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": _model(request),
            "choices": choices,
        }

    return [
        *(chunk([{"index": 0, "delta": {"content": word}}]) for word in _words(text)),
        chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
        {**chunk([]), "usage": _usage(text)},
    ]


def _model(request: httpx.Request) -> str:
    return request.url.path.partition("/ai/run/")[2]


def _usage(text: str) -> dict[str, int]:
    """Count a word as a token, and the prompt not at all."""
    num_words = len(_words(text))
    return {"prompt_tokens": 0, "completion_tokens": num_words, "total_tokens": num_words}


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+|\s+$", text)
