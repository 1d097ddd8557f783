"""Models that answer what a test says."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from tenantry.workers._host import Body, HostResponse
from tenantry.workers._values import is_mapping

from ._host import FakeStream, read_body

Answer: TypeAlias = "str | Mapping[str, Any] | BaseException | Iterable[str]"
"""Text, a whole result, what to raise, or (a list) the pieces of a streamed text."""
Answering: TypeAlias = Callable[[str, Any, dict[str, Any]], Answer]
"""Of model, inputs and options."""


class AiCall:
    """A run that the worker asked for."""

    def __init__(self, model: str, inputs: Any, options: dict[str, Any]) -> None:
        self.model = model
        self.inputs = inputs
        self.options = options
        self.stream: FakeStream | None = None

    model: str
    inputs: Any
    options: dict[str, Any]
    stream: FakeStream | None
    """What it was answered with, if it asked for a stream."""

    @property
    def was_passed_on(self) -> bool:
        """Whether the worker was given a stream, and read none of it."""
        return self.stream is not None and not self.stream.is_read


class FakeAI:
    """`env.AI` with answers in their order; the last is given again and again.

    `FakeAI("Hello.")`, `FakeAI(completion(tool_calls=[...]), "It is 20 degrees.")`,
    `FakeAI(AiError("AiError", "3040: Capacity temporarily exceeded, please try again.", 3040))`, or
    a function of model, inputs and options.
    """

    kind = "ai"

    def __init__(
        self, *answers: Answer | Answering, models: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        self._answers = list(answers)
        self._models = [dict(model) for model in models]
        self.calls: list[AiCall] = []

    calls: list[AiCall]
    """What was run, in order."""

    async def answer(self, method: str, args: list[Any], body: Body) -> object:
        """Answer a call of the worker."""
        if method == "models":
            return self._models
        model, inputs, options = args
        if inputs is None:
            inputs = json.loads(await read_body(body))
        call = AiCall(model, inputs, options)
        self.calls.append(call)
        answer = self._next(call)
        if isinstance(answer, BaseException):
            raise answer
        if inputs.get("stream"):
            call.stream = FakeStream(_events(answer, model), "text/event-stream")
            return call.stream
        result = _result(answer, model)
        if options.get("returnRawResponse"):
            headers = [("content-type", "application/json")]
            return HostResponse(200, headers, json.dumps(result).encode())
        return result

    def _next(self, call: AiCall) -> Answer:
        if not self._answers:
            raise LookupError("this FakeAI has no answer; give it some: FakeAI('Hello.')")
        answer = self._answers[min(len(self.calls), len(self._answers)) - 1]
        return answer(call.model, call.inputs, call.options) if callable(answer) else answer


def completion(
    text: str | None = None,
    *,
    tool_calls: Iterable[Mapping[str, Any]] = (),
    model: str = "fake",
    finish_reason: str | None = None,
) -> dict[str, Any]:
    """Make a whole result of text, or of calls that `tool_call` makes."""
    calls = [dict(call) for call in tool_calls]
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    return {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": finish_reason or ("tool_calls" if calls else "stop"),
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def tool_call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """Make a call of a tool, as a model makes it."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{name}", "type": "function", "function": function}


def _result(answer: Any, model: str) -> dict[str, Any]:
    if is_mapping(answer):
        return {**answer}
    return completion(answer if isinstance(answer, str) else "".join(answer), model=model)


async def _events(answer: Any, model: str) -> AsyncIterator[bytes]:
    """Yield a streamed answer, a chunk for each piece; of whole text, for each word."""
    pieces: list[str] = answer["choices"][0]["message"]["content"] if is_mapping(answer) else answer
    if isinstance(pieces, str):
        pieces = re.findall(r"\s*\S+", pieces)
    for piece in pieces:
        yield _event(model, {"content": piece}, None)
    yield _event(model, {}, "stop")
    yield b"data: [DONE]\n\n"


def _event(model: str, delta: dict[str, Any], finish_reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = {
        "id": "chatcmpl-fake",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": model,
        "choices": [choice],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"
