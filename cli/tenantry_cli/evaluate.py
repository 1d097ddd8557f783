"""`workerctl eval`: what a node's settings cost in right answers.

The judging is a recipe, and no wheel carries recipes: it runs in a process of its own where there is
a checkout, with the options that it takes there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec

import click

FORMATS_MODULE = "tenantry_recipes.formats"
FORMATS_PACKAGES = ("tenantry_recipes", "torch", "reasoning_gym", "tqdm")

_PATIENCE_S = 10
"""An interrupted evaluation has its results in the file and says where."""


class RecipesNotInstalled(click.ClickException):
    """Names the packages that are missing, and how to get them."""

    def __init__(self, missing: Iterable[str]) -> None:
        super().__init__(
            f"the recipes are not installed ({', '.join(missing)} missing); "
            "they are in the repository only, run there: pip install --editable '.[recipes]'"
        )


@click.group("eval")
def evaluate() -> None:
    """Judge models by held-out tasks with known answers."""


@evaluate.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def formats(ctx: click.Context, options: tuple[str, ...]) -> None:
    """Compare cache and weight formats on the nano models; --help says how."""
    missing = [name for name in FORMATS_PACKAGES if find_spec(name) is None]
    if missing:
        raise RecipesNotInstalled(missing)
    with subprocess.Popen([sys.executable, "-m", FORMATS_MODULE, *options]) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # a terminal interrupts both
            code = _leave(process)
    ctx.exit(code)


def _leave(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.wait()
