"""What a base install lacks for the commands that need the runtime."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib.util import find_spec

import click


class RuntimeNotInstalled(click.ClickException):
    """Names the packages that are missing, and how to get them."""

    def __init__(self, missing: Iterable[str]) -> None:
        super().__init__(
            f"the runtime is not installed ({', '.join(missing)} missing); "
            "run: pip install 'tenantry[runtime]'"
        )


def require_packages(names: Iterable[str]) -> None:
    """Raise RuntimeNotInstalled unless all can be imported; imports none."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise RuntimeNotInstalled(missing)


@contextmanager
def runtime_imports() -> Generator[None, None, None]:
    """Around imports of the runtime: raise RuntimeNotInstalled where they lack a package."""
    try:
        yield
    except ModuleNotFoundError as error:
        # a module of ours that is not there is a defect
        if error.name is None or error.name.startswith("tenantry"):
            raise
        raise RuntimeNotInstalled([error.name]) from error
