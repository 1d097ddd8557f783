"""A GPU that only knows shapes: what a step launches on it, and whether it would wait for it.

Its tensors are on the device "meta" and have no contents, so everything that asks for a value fails,
as does every op whose shape depends on one. Kernels are noted, not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime import JITFunction, interpreter

from tenantry_kernels import choice

PRETENDED = torch.device("meta")

_LAUNCH = (
    (JITFunction, "run") if torch.cuda.is_available() else (interpreter.GridExecutor, "__call__")
)


@dataclass(frozen=True, slots=True)
class Launches:
    """What has been launched, kernels and operators in order."""

    noted: list[str] = field(default_factory=list)
    to_device: list[int] = field(default_factory=list)
    """Words of each copy there."""
    to_host: list[int] = field(default_factory=list)


class _Watch(TorchDispatchMode):
    """Notes operators on the device; refuses copies that the host would wait for."""

    def __init__(self, launches: Launches) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self._launches = launches

    # torch calls it with whatever operator and arguments there are
    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if op._can_decompose():
            with self:
                return op.decompose(*args, **kwargs)
        match str(op):
            case "aten._to_copy.default" if kwargs.get("device") is not None:
                source, is_to_device = args[0], kwargs["device"] == PRETENDED
                if source.is_meta != is_to_device:
                    self._cross(source, is_to_device, kwargs.get("non_blocking", False))
                    return torch.zeros(
                        source.shape,
                        dtype=kwargs.get("dtype") or source.dtype,
                        device=kwargs["device"],
                    )
            case "aten.copy_.default" if args[0].is_meta != args[1].is_meta:
                self._cross(args[1], args[0].is_meta, len(args) > 2 and args[2])
                return args[0]
        result = op(*args, **kwargs)
        given, made = _tensors((args, kwargs)), _tensors(result)
        if any(tensor.is_meta for tensor in (*given, *made)):
            assert all(one.is_meta or not one.dim() for one in given), f"{op} mixes devices"
            shapes = [tuple(tensor.shape) for tensor in made]
            self._launches.noted.append(f"{op} {shapes}")
        return result

    def _cross(self, source: torch.Tensor, is_to_device: bool, is_async: bool) -> None:
        assert is_async, f"the host waits for a copy of {tuple(source.shape)}"
        ways = self._launches.to_device if is_to_device else self._launches.to_host
        ways.append(source.numel())


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Let "meta" be a GPU, while it lasts; what is made ready on it may be waited for."""
    with (
        mock.patch.object(choice, "kind_of", lambda device: "cuda"),
        mock.patch.object(*_LAUNCH, lambda *_, **__: None),
    ):
        yield


@contextmanager
def watched() -> Iterator[Launches]:
    """Note what is launched; nobody may wait for it."""
    launches = Launches()

    def note(kernel: Any, *arguments: Any, **constants: Any) -> None:
        for tensor in _tensors((arguments, constants)):
            assert tensor.is_meta, f"{kernel.fn.__name__} gets memory of the host"
        # in the interpreter a kernel is made for each grid
        constants.setdefault("grid", getattr(kernel, "grid", None))
        launches.noted.append(f"{kernel.fn.__name__} {constants}")

    with mock.patch.object(*_LAUNCH, note), _Watch(launches):
        yield launches


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
