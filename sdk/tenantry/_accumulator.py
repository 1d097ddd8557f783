"""A whole answer from its chunks."""

from __future__ import annotations

from dataclasses import dataclass, field

from ._results import (
    Choice,
    Chunk,
    ChunkChoice,
    Completion,
    FunctionCall,
    Logprobs,
    Message,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    Usage,
)


@dataclass(slots=True, eq=False)
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])

    def add(self, more: ToolCallDelta) -> None:
        self.id = self.id or more.id or ""
        self.name = self.name or more.function.name or ""
        self.arguments.append(more.function.arguments)

    def whole(self) -> ToolCall:
        function = FunctionCall(name=self.name, arguments="".join(self.arguments))
        return ToolCall(id=self.id, type="function", function=function)


@dataclass(slots=True, eq=False)
class _Choice:
    content: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: dict[int, _Call] = field(default_factory=dict[int, _Call])
    logprobs: list[TokenLogprob] | None = None
    finish_reason: str | None = None

    def add(self, more: ChunkChoice) -> None:
        delta = more.delta
        if delta.content:
            self.content.append(delta.content)
        if thought := delta.reasoning or delta.reasoning_content:
            self.reasoning.append(thought)
        for each in delta.tool_calls:
            call = self.calls.get(each.index)
            if call is None:
                call = self.calls[each.index] = _Call()
            call.add(each)
        if more.logprobs is not None:
            self.logprobs = self.logprobs or []
            self.logprobs += more.logprobs.content
        self.finish_reason = more.finish_reason or self.finish_reason

    def whole(self, index: int) -> Choice:
        reasoning = "".join(self.reasoning) or None
        message = Message(
            role="assistant",
            content="".join(self.content) or None,
            reasoning=reasoning,
            reasoning_content=reasoning,
            tool_calls=[call.whole() for _, call in sorted(self.calls.items())],
        )
        return Choice(
            index=index,
            message=message,
            finish_reason=self.finish_reason,
            logprobs=None if self.logprobs is None else Logprobs(content=self.logprobs),
        )


@dataclass(slots=True, eq=False)
class Accumulator:
    """Joins what the chunks of a stream bring; linear in the length of the answer."""

    first: Chunk | None = None
    usage: Usage | None = None
    choices: dict[int, _Choice] = field(default_factory=dict[int, _Choice])

    def add(self, chunk: Chunk) -> None:
        self.first = self.first or chunk
        self.usage = chunk.usage or self.usage
        for each in chunk.choices:
            choice = self.choices.get(each.index)
            if choice is None:
                choice = self.choices[each.index] = _Choice()
            choice.add(each)

    def completion(self) -> Completion:
        """Return what the chunks so far amount to."""
        first = self.first or Chunk()
        return Completion(
            id=first.id,
            created=first.created,
            model=first.model,
            choices=[choice.whole(index) for index, choice in sorted(self.choices.items())],
            usage=self.usage or Usage(),
        )
