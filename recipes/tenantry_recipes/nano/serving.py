"""The models as evaluation sees them: the engine in this process, or an edge over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from tenantry import AI
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.core import (
    ContentDelta,
    Message,
    OutputEvent,
    ReasoningDelta,
    Sampling,
    ToolCall,
    ToolCallArguments,
    ToolCallStart,
)
from tenantry_runtime.engine.build import build_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.errors import GenerationFailed
from tenantry_runtime.pool.messages import Failed, Step, Submit
from tenantry_runtime.text import OutputMachine, Prompt, TextModel, load_text

from .responder import MAX_ANSWER_TOKENS, Answer, Ask

_MAX_WAITING = 1_000_000
"""More prompts than any evaluation has."""
_CONCURRENCY = 16
"""Requests in flight at an edge: enough to fill its batches, well under its queue."""
_GREEDY = Sampling(seed=0, temperature=0.0, max_tokens=MAX_ANSWER_TOKENS)


class EngineResponder:
    """A checkpoint, served by an engine of this process; many prompts share its batches."""

    def __init__(
        self,
        text: TextModel,
        loop: EngineLoop,
        *,
        encode: Callable[[Prompt], list[int]] | None = None,
    ) -> None:
        """`loop` serves one model; closing the responder closes it. `encode`: instead of the text's."""
        self.text = text
        self._encode = encode or text.encode
        self._loop = loop
        self.num_cached_tokens = 0
        """Of all prompts so far, those that a prefix tree had."""
        ((self._model, self._context_tokens),) = {
            (member.model, member.context_tokens) for member in loop.describe()
        }

    @classmethod
    def load(
        cls, directory: Path, *, threads: int = 1, max_batch: int = 32, cache: CacheName = "bf16"
    ) -> EngineResponder:
        """Load a checkpoint; `cache` is the format of its pages."""
        text = load_text(directory)
        source = ModelSource(
            id=directory.name, directory=str(directory), vocab_limit=text.vocab_size
        )
        config = NodeConfig(
            models=(source,),
            cache=cache,
            threads=threads,
            max_batch=max_batch,
            max_waiting=_MAX_WAITING,
        )
        return cls(text, build_loop(config))

    def __enter__(self) -> EngineResponder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.close()

    def respond(self, asks: Sequence[Ask], *, streams: int | None = None) -> list[Answer]:
        """Answer each prompt by itself, greedily, in order and at most `streams` at a time."""
        machines: list[OutputMachine] = []
        events: list[list[OutputEvent]] = [[] for _ in asks]
        num_running = 0
        while len(machines) < len(asks) or not self._loop.is_idle:
            while len(machines) < len(asks) and (streams is None or num_running < streams):
                ask = asks[len(machines)]
                prompt = self.text.render(ask.messages, ask.tools, ask.options)
                ids = self._encode(prompt)
                self._loop.submit(self._submit(str(len(machines)), ids))
                machines.append(self.text.machine(prompt.initial, ask.tools))
                num_running += 1
            for told in self._loop.turn():
                if isinstance(told, Failed):
                    raise GenerationFailed(told.message)
                for tokens in told.sequences if isinstance(told, Step) else ():
                    number = int(tokens.request_id)
                    events[number] += machines[number].feed(tokens.token_ids)
                    self.num_cached_tokens += tokens.cached_tokens
                    if tokens.finish is not None:
                        events[number] += machines[number].finish(tokens.finish)
                        num_running -= 1
        return [answer_of(each) for each in events]

    def _submit(self, request_id: str, ids: list[int]) -> Submit:
        return Submit(
            request_id=request_id,
            tenant="evaluation",
            model=self._model,
            token_ids=ids,
            sampling=_GREEDY,
            stop_token_ids=tuple(sorted(self.text.stop_token_ids)),
            max_tokens=min(MAX_ANSWER_TOKENS, self._context_tokens - len(ids)),
        )


class HttpResponder:
    """A model behind a running edge."""

    def __init__(self, ai: AI, model: str) -> None:
        """Closing the responder closes the client."""
        self._ai = ai
        self._model = model

    def __enter__(self) -> HttpResponder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ai.close()

    def respond(self, asks: Sequence[Ask]) -> list[Answer]:
        """Answer each prompt by itself, greedily."""
        with ThreadPoolExecutor(_CONCURRENCY) as workers:
            return list(workers.map(self._answer, asks))

    def _answer(self, ask: Ask) -> Answer:
        completion = self._ai.run(self._model, request_inputs(ask))
        calls = tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in completion.tool_calls
        )
        return Answer(content=completion.text, reasoning=completion.reasoning, tool_calls=calls)


def answer_of(events: Sequence[OutputEvent]) -> Answer:
    """Fold events into one answer."""
    content, reasoning = "", ""
    calls: list[tuple[ToolCallStart, list[str]]] = []
    for event in events:
        match event:
            case ContentDelta(text):
                content += text
            case ReasoningDelta(text):
                reasoning += text
            case ToolCallStart():
                calls.append((event, []))
            case ToolCallArguments(_, text):
                calls[-1][1].append(text)
    made = (
        ToolCall(id=start.id, name=start.name, arguments="".join(parts)) for start, parts in calls
    )
    return Answer(content=content, reasoning=reasoning, tool_calls=tuple(made))


def request_inputs(ask: Ask) -> dict[str, Any]:
    """Write a prompt as the inputs of a call."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in ask.tools
    ]
    options = {
        "thinking": ask.options.thinking is not False,
        "preserve_thinking": bool(ask.options.preserve_thinking),
    }
    return {
        "messages": [_message_body(message) for message in ask.messages],
        **({"tools": tools} if tools else {}),
        "chat_template_kwargs": options,
        "temperature": 0,
        "max_tokens": MAX_ANSWER_TOKENS,
    }


def _message_body(message: Message) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.tool_calls
    ]
    return {
        "role": message.role,
        "content": message.content,
        **({"reasoning": message.reasoning} if message.reasoning is not None else {}),
        **({"tool_calls": calls} if calls else {}),
        **({"tool_call_id": message.tool_call_id} if message.tool_call_id else {}),
    }
