"""A worker as its host runs it: the entrypoints of its main module, and how each is called.

The host makes the isolate's own `Invocation`, enters it, imports the module, makes a `Worker` of that,
and calls its methods, each in a task of its own for an invocation that it begins: the invocation is
the task's current one from then on, also while the task pulls the body of the reply. All that a
handler does is cancelled with that task, but what `wait_until` was given.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ._abort import AbortController
from ._body import host_body
from ._entrypoints import Context, ScheduledController, WorkerEntrypoint
from ._host import HostReply, HostRequest, Invocation, enter
from ._request import Request
from ._response import Response
from ._values import plain

DEFAULT = "Default"
_HANDLERS = ("fetch", "scheduled")
_NOT_CALLED = frozenset({"ctx", "env", "fetch", "scheduled", "queue", "tail", "email", "alarm"})
"""Names that a service binding does not reach as methods."""


class Worker:
    """The entrypoints of a main module.

    Making one raises `TypeError` for what is no worker: no entrypoint, or more than one default.
    """

    def __init__(self, module: ModuleType) -> None:
        self._classes = _classes_of(module)
        self._functions = {
            name: function
            for name in _HANDLERS
            if callable(function := vars(module).get(f"on_{name}"))
        }
        if "" in self._classes and self._functions:
            raise TypeError(
                "Cannot define multiple default entrypoints: the module has both a Default class and "
                f"{', '.join(f'on_{name}' for name in self._functions)}"
            )
        if not self._classes and not self._functions:
            raise TypeError(
                f"{module.__name__} is no worker: it needs a class Default(WorkerEntrypoint), or a "
                "function on_fetch(request, env, ctx)"
            )
        self.entrypoints = {name: _methods_of(cls) for name, cls in self._classes.items()}
        if self._functions:
            self.entrypoints[""] = list(self._functions)
        self._num_args = self._count_args()

    entrypoints: dict[str, list[str]]
    """Name of a class ("" for the default, and for a module's functions) to its public methods."""

    async def fetch(
        self, invocation: Invocation, entrypoint: str, request: HostRequest
    ) -> HostReply:
        """Answer a request; raises what the handler raises, and `TypeError` for no response.

        A body that the reply pulls ends with `aclose()`, by the caller.
        """
        abort = AbortController()
        received = Request.received(request, abort.signal)
        enter(invocation)
        try:
            answer = await self._handle(invocation, entrypoint, "fetch", received)
        except asyncio.CancelledError:
            abort.abort()
            raise
        if not isinstance(answer, Response):
            raise TypeError(f"fetch returned a {type(answer).__name__}, not a Response")
        body = host_body(answer.take_body())
        return HostReply(answer.status, answer.headers.raw_items(), body)

    async def scheduled(
        self, invocation: Invocation, entrypoint: str, cron: str, scheduled_ms: int
    ) -> None:
        """Run the handler of a cron trigger; raises what it raises."""
        controller = ScheduledController(cron, scheduled_ms)
        enter(invocation)
        await self._handle(invocation, entrypoint, "scheduled", controller)

    async def rpc(
        self,
        invocation: Invocation,
        entrypoint: str,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> object:
        """Call a public method; raises what it raises. What it returns is what MessagePack knows."""
        if method in _NOT_CALLED or method not in self._methods(entrypoint):
            raise AttributeError(f"{entrypoint or DEFAULT} has no public method {method!r}")
        enter(invocation)
        instance = self._instance(invocation, entrypoint)
        result = await _result(getattr(instance, method)(*args, **kwargs))
        return plain(result, f"what {method} returns")

    async def close(self, isolate: Invocation) -> None:
        """Tell the worker's applications that the isolate ends, last first."""
        while isolate.closing:
            await isolate.closing.pop()()

    async def _handle(
        self, invocation: Invocation, entrypoint: str, name: str, argument: object
    ) -> object:
        if name not in self._methods(entrypoint):
            raise AttributeError(f"{entrypoint or DEFAULT} has no handler {name!r}")
        context = Context(invocation)
        function: Callable[..., Any]
        if entrypoint in self._classes:
            function = getattr(self._classes[entrypoint](context, invocation.env), name)
        else:
            function = self._functions[name]
        args = (argument, invocation.env, context)[: self._num_args[entrypoint, name]]
        return await _result(function(*args))

    def _instance(self, invocation: Invocation, entrypoint: str) -> WorkerEntrypoint:
        return self._classes[entrypoint](Context(invocation), invocation.env)

    def _methods(self, entrypoint: str) -> list[str]:
        methods = self.entrypoints.get(entrypoint)
        if methods is None:
            raise AttributeError(f"the worker has no entrypoint {entrypoint or DEFAULT!r}")
        return methods

    def _count_args(self) -> dict[tuple[str, str], int]:
        counts: dict[tuple[str, str], int] = {}
        for entrypoint, methods in self.entrypoints.items():
            for name in _HANDLERS:
                if name not in methods:
                    continue
                cls = self._classes.get(entrypoint)
                handler = self._functions[name] if cls is None else getattr(cls, name)
                counts[entrypoint, name] = _num_args(handler, is_method=cls is not None)
        return counts


async def _result(result: Any) -> Any:
    # what nearly every handler returns is told at once
    is_coroutine: bool = inspect.iscoroutine(result)
    return await result if is_coroutine or inspect.isawaitable(result) else result


def _classes_of(module: ModuleType) -> dict[str, type[WorkerEntrypoint]]:
    return {
        "" if name == DEFAULT else name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, WorkerEntrypoint)
        and value is not WorkerEntrypoint
        and not name.startswith("_")
    }


def _methods_of(cls: type[WorkerEntrypoint]) -> list[str]:
    return [
        name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name, None))
    ]


def _num_args(handler: Callable[..., Any], *, is_method: bool) -> int:
    """Count how many of its three arguments a handler takes.

    Raises `TypeError` for one that needs more, or one by its name only.
    """
    parameters = list(inspect.signature(handler).parameters.values())[int(is_method) :]
    taken = 0
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            return 3
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            taken += 1
        needs = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        if needs and (taken > 3 or parameter.kind is parameter.KEYWORD_ONLY):
            raise TypeError(
                f"{handler.__qualname__} needs {parameter.name!r}; a handler is given its request "
                "(or controller), env and ctx"
            )
    return min(taken, 3)
