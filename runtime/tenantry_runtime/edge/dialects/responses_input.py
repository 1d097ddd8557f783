"""What `/v1/responses` takes: a conversation as items, and what each is in `chat_input`.

| item | |
|---|---|
| `message`, or a role without a type | a message; an assistant's joins the turn before it |
| `reasoning` | the assistant's reasoning, from its `content` |
| `function_call` | a call of the assistant |
| `function_call_output` | its answer, by `call_id` |

Items of one assistant turn that follow each other are one message. Others are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from tenantry_runtime.core import Message
from tenantry_runtime.errors import InvalidInput

from .chat_input import (
    AssistantMessage,
    CallId,
    FunctionCallInput,
    MessageInput,
    SystemMessage,
    TextPart,
    ToolCallInput,
    ToolMessage,
    ToolName,
    UserMessage,
    conversation,
)
from .parameters import Input, invalid


class InputText(Input, frozen=True, kw_only=True, tag_field="type", tag="input_text"):
    text: str


class OutputText(Input, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    text: str
    # Any: as the answer had them
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


# Parts that these models cannot read: what is wrong is their type
class InputImage(msgspec.Struct, tag_field="type", tag="input_image"):
    pass


class InputFile(msgspec.Struct, tag_field="type", tag="input_file"):
    pass


class InputAudio(msgspec.Struct, tag_field="type", tag="input_audio"):
    pass


ItemPart: TypeAlias = InputText | OutputText | TextPart | InputImage | InputFile | InputAudio
ItemContent: TypeAlias = str | list[ItemPart] | None
ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class Item(Input, frozen=True, kw_only=True):
    """`id` and `status` are those of an answer that comes back; they say nothing new."""

    id: str | None = None
    status: ItemStatus | None = None


class MessageItem(Item, frozen=True, kw_only=True):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: ItemContent = None


class ReasoningText(Input, frozen=True, kw_only=True, tag_field="type", tag="reasoning_text"):
    text: str


class ReasoningItem(Item, frozen=True, kw_only=True):
    type: Literal["reasoning"] = "reasoning"
    content: list[ReasoningText] | None = None
    # answers of this API have neither of these
    summary: Annotated[list[Any], Meta(max_length=0)] | None = None
    encrypted_content: None = None


class FunctionCallItem(Item, frozen=True, kw_only=True):
    type: Literal["function_call"] = "function_call"
    call_id: CallId
    name: ToolName
    arguments: str


class FunctionCallOutputItem(Item, frozen=True, kw_only=True):
    type: Literal["function_call_output"] = "function_call_output"
    call_id: CallId
    output: ItemContent


AnyItem: TypeAlias = MessageItem | ReasoningItem | FunctionCallItem | FunctionCallOutputItem

ITEMS: Mapping[str, type[AnyItem]] = MappingProxyType(
    {
        "message": MessageItem,
        "reasoning": ReasoningItem,
        "function_call": FunctionCallItem,
        "function_call_output": FunctionCallOutputItem,
    }
)


@dataclass(slots=True)
class _Turn:
    """An assistant's message in the making."""

    path: str
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCallInput] = field(default_factory=list)

    def message(self) -> AssistantMessage:
        return AssistantMessage(
            content="".join(self.content),
            reasoning="".join(self.reasoning) or None,
            tool_calls=self.calls,
        )


class _Conversation:
    """Messages in the making, and where each stands in the request."""

    def __init__(self) -> None:
        self.messages: list[MessageInput] = []
        self.paths: list[str] = []
        self._turn: _Turn | None = None

    def add(self, message: MessageInput, path: str) -> None:
        self.end_turn()
        self.messages.append(message)
        self.paths.append(path)

    def turn(self, path: str) -> _Turn:
        """Return the assistant's turn that is open, or open one."""
        if self._turn is None:
            self._turn = _Turn(path)
        return self._turn

    def end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            self.add(turn.message(), turn.path)


# Any: JSON objects, whose type is looked at first
def read_input(
    given: str | Sequence[dict[str, Any]], instructions: str | None
) -> tuple[Message, ...]:
    """Translate the input; raise `InvalidInput` for an item that is not right, or out of place."""
    talk = _Conversation()
    if instructions is not None:
        talk.add(SystemMessage(content=instructions), "instructions")
    if isinstance(given, str):
        talk.add(UserMessage(content=given), "input")
    else:
        if not given:
            raise InvalidInput("input", "must not be empty")
        for index, raw in enumerate(given):
            path = f"input[{index}]"
            _add(_item(raw, path), path, talk)
    talk.end_turn()
    return conversation(talk.messages, talk.paths)


def _item(raw: dict[str, Any], path: str) -> AnyItem:
    kind = raw.get("type", "message")
    if not isinstance(kind, str) or kind not in ITEMS:
        raise InvalidInput(f"{path}.type", f"{str(kind)[:100]!r} is not supported")
    try:
        return msgspec.convert(raw, ITEMS[kind])
    except msgspec.ValidationError as error:
        raise invalid(str(error), within=path) from error


def _add(item: AnyItem, path: str, talk: _Conversation) -> None:
    match item:
        case MessageItem(role="assistant"):
            talk.turn(path).content.append(_text(item.content, f"{path}.content"))
        case MessageItem(role="user"):
            talk.add(UserMessage(content=_text(item.content, f"{path}.content")), path)
        case MessageItem():
            talk.add(SystemMessage(content=_text(item.content, f"{path}.content")), path)
        case ReasoningItem(content=content):
            talk.turn(path).reasoning.extend(part.text for part in content or ())
        case FunctionCallItem(call_id=call_id, name=name, arguments=arguments):
            function = FunctionCallInput(name=name, arguments=arguments)
            talk.turn(path).calls.append(ToolCallInput(id=call_id, function=function))
        case FunctionCallOutputItem(call_id=call_id, output=output):
            text = _text(output, f"{path}.output")
            talk.add(ToolMessage(content=text, tool_call_id=call_id), path)


def _text(content: ItemContent, path: str) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case parts:
            return "".join(_part(part, f"{path}[{index}]") for index, part in enumerate(parts))


def _part(part: ItemPart, path: str) -> str:
    if isinstance(part, InputText | OutputText | TextPart):
        return part.text
    kind = part.__struct_config__.tag
    raise InvalidInput(f"{path}.type", f"{kind!r} is not supported yet: the model reads text only")
