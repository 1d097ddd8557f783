"""Conversations and tools as OpenAI's chat API has them, and what they are in `core`.

The order of messages, beyond what the types say: a `tool` message answers, by its id and once, a
call of the last assistant message, with nothing but other answers or system messages between; and
the last message is not the assistant's, as there would be nothing to answer. A call may stay
unanswered. System messages may stand anywhere; `developer` is another word for `system`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from tenantry_runtime.core import Message, Tool, ToolCall
from tenantry_runtime.errors import InvalidInput

from .parameters import Input

ToolName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
CallId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
ParticipantName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]


class TextPart(Input, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


# Parts that these models cannot read have no fields here: what is wrong is their type. Any: unread.
class ImagePart(msgspec.Struct, tag_field="type", tag="image_url"):
    pass


class AudioPart(msgspec.Struct, tag_field="type", tag="input_audio"):
    pass


class FilePart(msgspec.Struct, tag_field="type", tag="file"):
    pass


class VideoPart(msgspec.Struct, tag_field="type", tag="video_url"):
    pass


ContentPart: TypeAlias = TextPart | ImagePart | AudioPart | FilePart | VideoPart
Content: TypeAlias = str | list[ContentPart] | None


class FunctionCallInput(Input, frozen=True, kw_only=True):
    name: ToolName
    arguments: str | dict[str, Any] | None = None


class ToolCallInput(Input, frozen=True, kw_only=True):
    id: CallId
    type: Literal["function"] = "function"
    function: FunctionCallInput
    index: int | None = None
    """Of the stream that the call came from; its place in the list says the same."""


class SystemMessage(Input, frozen=True, kw_only=True, tag_field="role", tag="system"):
    content: Content
    name: ParticipantName | None = None


class DeveloperMessage(Input, frozen=True, kw_only=True, tag_field="role", tag="developer"):
    content: Content
    name: ParticipantName | None = None


class UserMessage(Input, frozen=True, kw_only=True, tag_field="role", tag="user"):
    content: Content
    name: ParticipantName | None = None


class AssistantMessage(Input, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    """An earlier answer, as this API or OpenAI's printed it."""

    content: Content = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallInput] | None = None
    name: ParticipantName | None = None
    # always empty in answers of this API
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: Annotated[list[Any], Meta(max_length=0)] | None = None


class ToolMessage(Input, frozen=True, kw_only=True, tag_field="role", tag="tool"):
    content: Content
    tool_call_id: CallId
    name: ParticipantName | None = None


class FunctionMessage(msgspec.Struct, tag_field="role", tag="function"):
    """OpenAI's older form of a tool's result, known only to be refused by name."""


MessageInput: TypeAlias = (
    SystemMessage
    | DeveloperMessage
    | UserMessage
    | AssistantMessage
    | ToolMessage
    | FunctionMessage
)


class FunctionInput(Input, frozen=True, kw_only=True):
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolInput(Input, frozen=True, kw_only=True):
    """OpenAI's form, with `function`, or the flat one of older Workers AI models."""

    type: Literal["function"] | None = None
    function: FunctionInput | None = None
    name: ToolName | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


def conversation(
    messages: Sequence[MessageInput], paths: Sequence[str] | None = None
) -> tuple[Message, ...]:
    """Translate a conversation; raise `InvalidInput` where a message is out of place.

    `paths`: where in the request each message stands, if not in a list `messages`.
    """
    if not messages:
        raise InvalidInput("messages", "must not be empty")
    paths = paths or [f"messages[{index}]" for index in range(len(messages))]
    open_calls: set[str] = set()
    read: list[Message] = []
    for message, path in zip(messages, paths, strict=True):
        match message:
            case SystemMessage() | DeveloperMessage():
                read.append(_plain("system", message, path))
            case UserMessage():
                open_calls = set()
                read.append(_plain("user", message, path))
            case AssistantMessage():
                read.append(_assistant(message, path))
                open_calls = {call.id for call in read[-1].tool_calls}
            case ToolMessage(tool_call_id=call_id):
                _answer(call_id, open_calls, path)
                read.append(_plain("tool", message, path, call_id))
            case FunctionMessage():
                problem = "'function' is not supported; use 'tool', with tool_call_id"
                raise InvalidInput(f"{path}.role", problem)
    if read[-1].role == "assistant":
        raise InvalidInput(
            f"{paths[-1]}.role", "the last message must not be the assistant's: what to answer?"
        )
    return tuple(read)


def offered_tools(tools: Sequence[ToolInput]) -> tuple[Tool, ...]:
    """Translate tools of either form; raise `InvalidInput` for a repeated name."""
    read: list[Tool] = []
    names: set[str] = set()
    for index, tool in enumerate(tools):
        function = _function(tool, f"tools[{index}]")
        if function.name in names:
            raise InvalidInput(f"tools[{index}]", f"the name {function.name!r} is taken")
        names.add(function.name)
        read.append(
            Tool(
                name=function.name,
                description=function.description,
                parameters=function.parameters or {},
            )
        )
    return tuple(read)


def _plain(
    role: Literal["system", "user", "tool"],
    message: SystemMessage | DeveloperMessage | UserMessage | ToolMessage,
    path: str,
    tool_call_id: str | None = None,
) -> Message:
    return Message(
        role=role,
        content=_text(message.content, path),
        name=message.name,
        tool_call_id=tool_call_id,
    )


def _assistant(message: AssistantMessage, path: str) -> Message:
    reasoning = message.reasoning
    if reasoning is None:
        reasoning = message.reasoning_content
    elif message.reasoning_content not in (None, reasoning):
        raise InvalidInput(f"{path}.reasoning_content", "differs from 'reasoning'")
    calls: list[ToolCall] = []
    ids: set[str] = set()
    for index, call in enumerate(message.tool_calls or ()):
        call_path = f"{path}.tool_calls[{index}]"
        if call.id in ids:
            raise InvalidInput(f"{call_path}.id", f"{call.id!r} is taken by another call")
        ids.add(call.id)
        arguments = _arguments(call.function.arguments, f"{call_path}.function.arguments")
        calls.append(ToolCall(id=call.id, name=call.function.name, arguments=arguments))
    return Message(
        role="assistant",
        content=_text(message.content, path),
        reasoning=reasoning,
        tool_calls=tuple(calls),
        name=message.name,
    )


def _answer(call_id: str, open_calls: set[str], path: str) -> None:
    if call_id not in open_calls:
        problem = f"{call_id!r} answers no open call of the assistant message before it"
        raise InvalidInput(f"{path}.tool_call_id", problem)
    open_calls.remove(call_id)


def _text(content: Content, path: str) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case parts:
            return "".join(
                _part(part, f"{path}.content[{index}]") for index, part in enumerate(parts)
            )


def _part(part: ContentPart, path: str) -> str:
    if isinstance(part, TextPart):
        return part.text
    kind = part.__struct_config__.tag
    raise InvalidInput(f"{path}.type", f"{kind!r} is not supported yet: the model reads text only")


def _arguments(arguments: str | dict[str, Any] | None, path: str) -> str:
    if isinstance(arguments, dict):
        # spaced as templates space what they are given as an object
        return json.dumps(arguments, ensure_ascii=False)
    # models call functions without parameters with nothing
    text = arguments or "{}"
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(path, "must be the JSON text of an object") from error
    return text


def _function(tool: ToolInput, path: str) -> FunctionInput:
    function = tool.function
    if function is None:
        if tool.name is None:
            raise InvalidInput(path, "must have either 'function' or 'name'")
        function = FunctionInput(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            strict=tool.strict,
        )
    elif (tool.name, tool.description, tool.parameters, tool.strict) != (None,) * 4:
        raise InvalidInput(path, "has both 'function' and fields that belong into it")
    return function
