"""Python functions as tools: declared from their annotations, called with decoded arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, cast, get_type_hints, overload

import anyio.to_thread
import msgspec

from ._docstring import describe
from ._results import ToolCall
from ._schema import schema_of

P = ParamSpec("P")
R = TypeVar("R")


class ToolResult:
    """What came of one call; goes into the next request's `messages` as it is."""

    __slots__ = ("call", "content", "error")

    def __init__(self, call: ToolCall, content: str, error: Exception | None = None) -> None:
        self.call = call
        self.content = content
        self.error = error

    call: ToolCall
    content: str
    """What the model reads: JSON, or the text that the function returned."""
    error: Exception | None
    """Why there is no result; the model is told of it in `content`."""

    def __repr__(self) -> str:
        return f"ToolResult({self.call.function.name}: {self.content})"

    @property
    def message(self) -> dict[str, str]:
        """The message that answers the call."""
        return {"role": "tool", "tool_call_id": self.call.id, "content": self.content}


class Tool(Generic[P, R]):
    """A function that models may call; still a function for everyone else.

    What the model is told comes from the function: its name, its docstring, the annotations of its
    parameters (any type that msgspec decodes), and what a section `Args:` says of each.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        self._function = function
        self._arguments = _arguments_type(function)
        self.name = name or self._arguments.__name__
        documented = describe(inspect.getdoc(function) or "")
        self.description = documented.summary if description is None else description
        self.parameters = _parameters(self._arguments, documented.parameters)
        self.__doc__ = function.__doc__

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON Schema of its arguments."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name})"

    @property
    def declaration(self) -> dict[str, Any]:
        """The entry of `tools` that declares it."""
        function: dict[str, Any] = {"name": self.name}
        if self.description:
            function["description"] = self.description
        return {"type": "function", "function": {**function, "parameters": self.parameters}}

    def answer(self, call: ToolCall) -> ToolResult:
        """Call the function as the model asks; what fails becomes the result, with its `error`."""
        try:
            returned: object = self._bound(call)()
            if inspect.iscoroutine(returned):
                returned.close()
                raise TypeError(f"{self.name} is asynchronous: await answer_async()")
            return ToolResult(call, _content(returned))
        # whatever the function fails with is for the model to know, and the caller reads `error`
        except Exception as error:
            return _failed(call, error)

    async def answer_async(self, call: ToolCall) -> ToolResult:
        """Do as `answer` does; a function that is not asynchronous runs in a thread."""
        try:
            bound = self._bound(call)
            if inspect.iscoroutinefunction(self._function):
                returned: object = await bound()
            else:
                returned = await anyio.to_thread.run_sync(bound)
            return ToolResult(call, _content(returned))
        except Exception as error:
            return _failed(call, error)

    # Any: the function's own return type, which may be a coroutine's
    def _bound(self, call: ToolCall) -> Callable[[], Any]:
        """Decode the arguments; those that the model left out are the function's defaults."""
        decoded = msgspec.json.decode(call.function.arguments or "{}", type=self._arguments)
        given = msgspec.structs.asdict(decoded)
        arguments = {name: value for name, value in given.items() if value is not msgspec.UNSET}
        function = cast("Callable[..., Any]", self._function)
        return lambda: function(**arguments)


# Any: tools of whatever functions
AnyTool: TypeAlias = Tool[..., Any] | Callable[..., Any]


@overload
def tool(function: Callable[P, R]) -> Tool[P, R]: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool of a function, as a decorator or by a call.

    @tool
    def find_price(city: str, seats: int = 1) -> int:
        \"""Find the price of a ticket.

        Args:
            city: Where to go.
        \"""

    answer = ai.run(model, {"messages": messages, "tools": [find_price]})
    messages += [answer.message, *run_tools([find_price], answer.tool_calls)]
    """
    if function is not None:
        return Tool(function)
    return lambda function: Tool(function, name=name, description=description)


def run_tools(tools: Iterable[AnyTool], calls: Iterable[ToolCall]) -> list[ToolResult]:
    """Answer the calls one after the other; one of a tool that is not there gets an error."""
    named = _by_name(tools)
    return [
        named[call.function.name].answer(call)
        if call.function.name in named
        else _absent(call, named)
        for call in calls
    ]


async def run_tools_async(tools: Iterable[AnyTool], calls: Iterable[ToolCall]) -> list[ToolResult]:
    """Do as `run_tools` does, with functions that may be asynchronous."""
    named = _by_name(tools)
    return [
        await named[call.function.name].answer_async(call)
        if call.function.name in named
        else _absent(call, named)
        for call in calls
    ]


def as_tool(function: AnyTool) -> Tool[..., Any]:
    """Take a tool as it is, and make one of anything else that can be called."""
    if isinstance(function, Tool):
        return cast("Tool[..., Any]", function)
    return Tool(function)


def _by_name(tools: Iterable[AnyTool]) -> dict[str, Tool[..., Any]]:
    return {each.name: each for each in map(as_tool, tools)}


def _absent(call: ToolCall, named: Mapping[str, object]) -> ToolResult:
    return _failed(call, LookupError(f"no tool {call.function.name!r}; there are {sorted(named)}"))


def _failed(call: ToolCall, error: Exception) -> ToolResult:
    said = str(error) or type(error).__name__
    return ToolResult(call, msgspec.json.encode({"error": said}).decode(), error)


def _content(returned: object) -> str:
    return returned if isinstance(returned, str) else msgspec.json.encode(returned).decode()


def _arguments_type(function: Callable[..., object]) -> type[msgspec.Struct]:
    """Make the type of the object that holds all arguments."""
    hints = get_type_hints(function, include_extras=True)
    name: str = getattr(function, "__name__", type(function).__name__)
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{name}({parameter}): a tool's arguments are passed by their names")
        if parameter.name not in hints:
            raise TypeError(f"{name}({parameter}): a tool's parameters need annotations")
        hint = hints[parameter.name]
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint | msgspec.UnsetType, msgspec.UNSET))
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def _parameters(arguments: type[msgspec.Struct], described: Mapping[str, str]) -> dict[str, Any]:
    schema = schema_of(arguments)
    properties = schema.setdefault("properties", {})
    for name in described.keys() & properties.keys():
        properties[name].setdefault("description", described[name])
    return schema
