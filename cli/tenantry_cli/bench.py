"""`workerctl bench`: measure, on a running system or on a simulated clock."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .installed import runtime_imports
from .json_output import print_json
from .replay_table import remarks, replay_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tenantry_runtime.replay.runs import Run
    from tenantry_runtime.replay.trace import TraceOptions
    from tenantry_runtime.replay.workload import ReplayRequest

ROUTINGS = ("affinity", "round-robin", "prefix", "oracle", "infinite")

# what says nothing without --simulate, and with it
_SIMULATED_ONLY = (
    "members",
    "decode_members",
    "cache_tokens",
    "decode_cache_tokens",
    "chunk_tokens",
    "max_batch",
    "routing",
    "costs",
    "tenants",
)
_LIVE_ONLY = ("url", "account", "token", "model", "concurrency", "timeout")


@click.group()
def bench() -> None:
    """Measure, on a running system or on a simulated clock."""


@bench.command()
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--simulate", is_flag=True, help="Simulate members instead of asking a system.")
@click.option("--scale", type=click.IntRange(min=1), default=1, help="Divide lengths by this.")
@click.option("--speed", type=float, default=1.0, help="2 halves the time between requests.")
@click.option("--limit", type=click.IntRange(min=1), help="Only so many requests.")
@click.option("--seed", type=int, default=0, help="Of the prompts.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the outcome: FILE.svg."
)
@click.option(
    "--members",
    type=click.IntRange(min=1),
    multiple=True,
    default=(8,),
    show_default=True,
    help="Simulated: prefill members; may be given more than once.",
)
@click.option(
    "--decode-members",
    type=click.IntRange(min=0),
    help="Simulated: default one for each four prefill members; 0 measures prefill alone.",
)
@click.option(
    "--cache-tokens",
    type=click.IntRange(min=1),
    help="Simulated: of each prefill member; default 686,000, Kimi K2.6 on 8 H200.",
)
@click.option(
    "--decode-cache-tokens",
    type=click.IntRange(min=1),
    help="Simulated: of each decode member; default 1,370,000.",
)
@click.option(
    "--chunk-tokens",
    type=click.IntRange(min=1),
    default=8192,
    show_default=True,
    help="Simulated: of a prefill step.",
)
@click.option(
    "--max-batch",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="Simulated: sequences of a member that hold pages at a time.",
)
@click.option(
    "--routing",
    type=click.Choice(ROUTINGS),
    multiple=True,
    default=("affinity",),
    show_default=True,
    help="Simulated: may be given more than once.",
)
@click.option(
    "--costs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Simulated: TOML with fixed_s, token_s and read_s of [prefill] and [decode].",
)
@click.option(
    "--tenants",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Simulated: spread sessions over so many.",
)
@click.option("--url", help="Of the system, up to /client/v4; default: as for `workerctl ai`.")
@click.option("--account", help="Default: as for `workerctl ai`.")
@click.option("--token", help="Default: as for `workerctl ai`.")
@click.option("--model", default="kimi-k2.6", show_default=True, help="Asked on the system.")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Requests that are open at a time.",
)
@click.option(
    "--timeout", type=float, default=600.0, show_default=True, help="Seconds of a stream's silence."
)
@click.pass_context
def replay(
    ctx: click.Context,
    trace: Path,
    simulate: bool,
    scale: int,
    speed: float,
    limit: int | None,
    seed: int,
    as_json: bool,
    plot: Path | None,
    members: tuple[int, ...],
    decode_members: int | None,
    cache_tokens: int | None,
    decode_cache_tokens: int | None,
    chunk_tokens: int,
    max_batch: int,
    routing: tuple[str, ...],
    costs: Path | None,
    tenants: int,
    url: str | None,
    account: str | None,
    token: str | None,
    model: str,
    concurrency: int,
    timeout: float,
) -> None:
    """Send the requests of TRACE again, at its times, and say what came of the cache and of time.

    TRACE has one JSON object a line: timestamp (ms), input_length, output_length (tokens) and
    hash_ids, one for each 512 tokens of the input. It names no sessions: requests that share blocks
    after the first are one. Prompts are made up so that equal blocks are equal tokens.

    Without --simulate a running system is asked. With it, the router, scheduler and caches of the
    runtime run on a simulated clock; no model and no GPU are needed. --scale then keeps the
    proportions: one simulated token stands for that many of the trace.
    """
    _refuse_misplaced(ctx, _LIVE_ONLY if simulate else _SIMULATED_ONLY, simulate=simulate)
    if plot is not None and plot.suffix != ".svg":
        raise click.UsageError(
            f"--plot draws SVG; name a file that ends in .svg, not {plot.name!r}"
        )
    with runtime_imports(), _explained():
        from tenantry_runtime.replay.trace import TraceOptions

        options = TraceOptions(scale=scale, speed=speed, limit=limit)
        if simulate:
            from tenantry_runtime.replay.costs import Costs, read_costs
            from tenantry_runtime.replay.fleet import FleetOptions, simulated

            fleet = FleetOptions(
                num_decode=decode_members,
                cache_tokens=cache_tokens,
                decode_cache_tokens=decode_cache_tokens,
                chunk_tokens=chunk_tokens,
                max_batch=max_batch,
                costs=Costs() if costs is None else read_costs(costs),
                seed=seed,
            )
            runs = [
                simulated(
                    _requests(trace, options, tenants),
                    options,
                    fleet,
                    num_prefill=number,
                    routing=way,
                )
                for number in dict.fromkeys(members)
                for way in dict.fromkeys(routing)
            ]
        else:
            runs = [
                _asked(
                    _requests(trace, options, 1),
                    options,
                    client=(url, account, token, timeout),
                    model=model,
                    concurrency=concurrency,
                    seed=seed,
                )
            ]
    _show(runs, as_json=as_json, plot=plot, title=f"Replay of {trace.name}")
    if any(run.errors for run in runs):
        ctx.exit(1)


def _refuse_misplaced(ctx: click.Context, names: Sequence[str], *, simulate: bool) -> None:
    from click.core import ParameterSource

    for name in names:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-")
            word = "has no meaning with" if simulate else "needs"
            raise click.UsageError(f"{option} {word} --simulate")


@contextmanager
def _explained() -> Generator[None, None, None]:
    """Turn what a user can act on into one line."""
    try:
        yield
    except (ValueError, OSError) as error:
        from tenantry import TenantryError

        if isinstance(error, TenantryError):
            raise
        raise click.ClickException(str(error)) from error


def _requests(trace: Path, options: TraceOptions, num_tenants: int) -> Iterator[ReplayRequest]:
    from tenantry_runtime.replay.trace import read_trace
    from tenantry_runtime.replay.workload import workload

    with trace.open("rb") as lines:
        yield from workload(read_trace(lines, options), num_tenants=num_tenants)


def _asked(
    requests: Iterator[ReplayRequest],
    options: TraceOptions,
    *,
    client: tuple[str | None, str | None, str | None, float],
    model: str,
    concurrency: int,
    seed: int,
) -> Run:
    import anyio

    from tenantry import AsyncAI
    from tenantry_runtime.replay.live import LiveOptions, LiveReplay
    from tenantry_runtime.replay.prompts import Prompts
    from tenantry_runtime.replay.runs import Run, Setting

    url, account, token, timeout_s = client

    async def ask() -> Run:
        async with AsyncAI(
            base_url=url, account_id=account, api_token=token, timeout=timeout_s, max_retries=0
        ) as ai:
            live = LiveReplay(
                client=ai,
                prompts=Prompts(seed),
                options=LiveOptions(model=model, max_open=concurrency),
            )
            outcome = await live.run(requests)
        return Run(
            setting=Setting(scale=options.scale, speed=options.speed),
            requests=outcome.requests,
            errors=outcome.errors,
            num_late=outcome.num_late,
            latest_s=outcome.latest_s,
        )

    return anyio.run(ask)


def _show(runs: Sequence[Run], *, as_json: bool, plot: Path | None, title: str) -> None:
    if plot is not None:
        from tenantry_runtime.replay.plot import svg

        try:
            plot.write_text(svg(runs, title=title), encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"the plot cannot be written: {error}") from error
    if as_json:
        print_json({"runs": [run.as_json() for run in runs]})
        return
    click.echo(replay_table(runs))
    for run in runs:
        for line in remarks(run):
            click.echo(line, err=True)
