"""What a worker finds in `env`: its bindings, its variables and its secrets."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ._bindings import AI, KvNamespace, Service
from ._host import Host, current
from ._values import wrap

_patches: ContextVar[Mapping[str, Any]] = ContextVar("patches")


class Env:
    """Bindings, variables and secrets by their names, as attributes; nobody can set them."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_values", dict(values))

    _values: dict[str, Any]

    # Any: what a name is, the deployment says
    def __getattr__(self, name: str) -> Any:
        patches = _patches.get(None)
        if patches is not None and name in patches:
            return patches[name]
        values = self._known()
        if name in values:
            # a copy of what is JSON: nobody changes it for other requests
            return wrap(values[name])
        if name.startswith("__"):
            raise AttributeError(name)
        known = ", ".join(sorted(values)) or "empty"
        raise AttributeError(
            f"env has no {name!r} ({known}); wrangler.jsonc names bindings and vars, "
            "`workerctl secret put` secrets"
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"env.{name} cannot be set: all requests share it; `with patch_env({name}=...)` does so "
            "for what runs inside"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"env.{name} cannot be deleted: all requests share it")

    def __dir__(self) -> list[str]:
        return sorted({*self._known(), *_patches.get({})})

    def __repr__(self) -> str:
        return f"Env({', '.join(dir(self))})"

    def _known(self) -> dict[str, Any]:
        values: dict[str, Any] = object.__getattribute__(self, "_values")
        return values


class CurrentEnv(Env):
    """The `env` of the worker whose code is running, for `from workers import env`."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__({})

    def _known(self) -> dict[str, Any]:
        return current().env._known()


@contextmanager
def patch_env(
    patches: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **more: Any
) -> Generator[None]:
    """Have other values in `env` inside, for this task and those that it starts."""
    before: Mapping[str, Any] = _patches.get({})
    token = _patches.set({**before, **dict(patches), **more})
    try:
        yield
    finally:
        _patches.reset(token)


def make_env(host: Host, bindings: Iterable[tuple[str, str, Any]]) -> Env:
    """Make an `env` of names, kinds (`ai`, `kv`, `service`, `value`) and, of kind `value`, values."""
    return Env({name: _binding(host, name, kind, value) for name, kind, value in bindings})


def _binding(host: Host, name: str, kind: str, value: Any) -> Any:
    match kind:
        case "ai":
            return AI(host, name)
        case "kv":
            return KvNamespace(host, name)
        case "service":
            return Service(host, name)
        case "value":
            return value
        case _:
            raise ValueError(f"a binding of an unknown kind: {kind!r}")
