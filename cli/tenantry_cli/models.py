"""`workerctl models`: what an operator does with models before they serve."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Literal

import click

from .coverage import coverage
from .installed import require_packages, runtime_imports
from .quantize import quantize

if TYPE_CHECKING:
    from tenantry_runtime.models.plan import MemberPlan, PlannedModel
    from tenantry_runtime.models.sizes import WeightFormat

# the arithmetic needs none; the package of the models' descriptions imports them
PLAN_PACKAGES = ("torch", "numpy")

DEFAULT_LENGTHS = (4_096, 32_768, 131_072)

_GIB = 1 << 30


@click.group()
def models() -> None:
    """Plan for models, and convert them."""


models.add_command(quantize)


models.add_command(coverage)


@models.command()
@click.argument("model")
@click.option(
    "--gpus", type=click.IntRange(min=1), default=8, show_default=True, help="Of one member."
)
@click.option(
    "--gpu",
    type=click.Choice(["h100", "h200", "b200"]),
    default="h200",
    show_default=True,
    help="Which.",
)
@click.option(
    "--weights",
    type=click.Choice(["int4", "fp8", "bf16"]),
    help="Of routed experts (int4), or of all matrices; default: as released.",
)
@click.option(
    "--rest",
    type=click.Choice(["bf16", "fp8"]),
    help="All matrices but the experts', with --weights int4; default: bf16.",
)
@click.option(
    "--cache",
    type=click.Choice(["bf16", "fp8", "fp8-576", "fp8-644", "fp8-656"]),
    default="fp8",
    show_default=True,
    help="fp8 has rows of 580 bytes in the released models; the others are compared with it.",
)
@click.option(
    "--memory-fraction",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.831,
    show_default=True,
    help="Of each GPU's memory, for weights, activations and cache.",
)
@click.option(
    "--activations",
    "activations_gib",
    type=click.FloatRange(min=0),
    default=0.0,
    help="GiB per GPU within that fraction; default: none, they take what it leaves free.",
)
@click.option(
    "--length",
    "lengths",
    type=click.IntRange(min=1),
    multiple=True,
    help="Tokens of a sequence, to count how many fit; may be repeated.",
)
@click.option("--text-only", is_flag=True, help="Without the vision tower, which is not served.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(
    model: str,
    gpus: int,
    gpu: str,
    weights: Literal["int4", "fp8", "bf16"] | None,
    rest: Literal["bf16", "fp8"] | None,
    cache: str,
    memory_fraction: float,
    activations_gib: float,
    lengths: tuple[int, ...],
    text_only: bool,
    as_json: bool,
) -> None:
    """Say what of MODEL fits on one member's GPUs: weights, cache, tokens, sequences.

    MODEL is kimi-k2.6, glm-5.2 or a directory with a config.json. Every GPU of a member holds all of
    the cache, so tokens are the member's.
    """
    if not isfinite(activations_gib):
        raise click.UsageError(f"--activations must be a number of GiB, not {activations_gib!r}")
    require_packages(PLAN_PACKAGES)
    with runtime_imports():
        from tenantry_runtime.cache.formats import CACHE_FORMATS
        from tenantry_runtime.errors import ConfigurationError
        from tenantry_runtime.models.plan import GPU_BYTES, Gpus, find_model, plan_member
    from .plan_table import PlanReport

    try:
        planned = find_model(model)
        stored = _stored(planned, weights, rest)
        result = plan_member(
            planned,
            weights=stored,
            cache=CACHE_FORMATS[cache],
            gpus=Gpus(
                num_gpus=gpus,
                bytes_per_gpu=GPU_BYTES[gpu],
                memory_fraction=memory_fraction,
                activation_bytes=int(activations_gib * _GIB),
            ),
            has_vision=not text_only,
        )
        sequences = {length: result.num_sequences(length) for length in _shown(result, lengths)}
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    report = PlanReport(
        model=model,
        gpu=gpu,
        num_gpus=gpus,
        weights=stored,
        cache=cache,
        memory_fraction=memory_fraction,
        plan=result,
        sequences=sequences,
    )
    click.echo(report.json() if as_json else report.table())


def _stored(
    model: PlannedModel,
    weights: Literal["int4", "fp8", "bf16"] | None,
    rest: Literal["bf16", "fp8"] | None,
) -> WeightFormat:
    from tenantry_runtime.models.sizes import WeightFormat

    if rest is not None and weights != "int4":
        raise click.UsageError("--rest goes with --weights int4 only")
    match weights:
        case "int4":
            return WeightFormat(experts="int4", rest=rest or "bf16")
        case "fp8" | "bf16":
            return WeightFormat(experts=weights, rest=weights)
        case None:
            if model.released_weights is None:
                raise click.UsageError("a directory needs --weights: int4, fp8 or bf16")
            return model.released_weights


def _shown(plan: MemberPlan, lengths: tuple[int, ...]) -> tuple[int, ...]:
    fitting = (length for length in DEFAULT_LENGTHS if length < plan.context_tokens)
    return lengths or (*fitting, plan.context_tokens)
