"""`workerctl models quantize`: a released checkpoint with its routed experts in INT4."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TextIO

import click

from .installed import require_packages, runtime_imports
from .tables import columns

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

    from tenantry_runtime.models.convert import Report

QUANTIZE_PACKAGES = ("torch", "numpy", "safetensors")

_GIB = 1 << 30


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("destination", type=click.Path(path_type=Path))
@click.option(
    "--experts",
    type=click.Choice(["int4"]),
    default="int4",
    show_default=True,
    help="Of routed experts: groups of 32, as Kimi's are released.",
)
@click.option(
    "--rest",
    type=click.Choice(["bf16", "fp8"]),
    default="bf16",
    show_default=True,
    help="All other matrices: bf16 loads in every engine; fp8, as released, in this runtime alone.",
)
@click.option(
    "--shard-gib",
    type=click.FloatRange(min=0, min_open=True),
    default=4.0,
    show_default=True,
    help="GiB of one file of the result. An interrupted run goes on at a file's start.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Default: one per core.")
def quantize(
    source: Path,
    destination: Path,
    experts: Literal["int4"],
    rest: Literal["bf16", "fp8"],
    shard_gib: float,
    threads: int | None,
) -> None:
    """Write the checkpoint in SOURCE to DESTINATION with smaller routed experts.

    SOURCE is a directory with a GLM or Kimi model in FP8 blocks or BF16. Until all is there,
    files are in DESTINATION.partial: after an interrupt or an error the same command goes on where
    it stopped. Run again after that, it compares every file with the manifest.
    """
    if not isfinite(shard_gib):
        raise click.UsageError(f"--shard-gib must be a number of GiB, not {shard_gib!r}")
    require_packages(QUANTIZE_PACKAGES)
    with runtime_imports():
        from tenantry_runtime.errors import CheckpointError, ConfigurationError
        from tenantry_runtime.models.convert import Conversion, Recipe, convert

    conversion = Conversion(
        source=source,
        destination=destination,
        recipe=Recipe(experts=experts, rest=rest),
        shard_bytes=max(1, int(shard_gib * _GIB)),
        num_threads=threads,
    )
    with ConversionProgress(sys.stderr) as progress:
        try:
            report = convert(conversion, progress)
        except KeyboardInterrupt:
            progress.say_interrupted(destination)
            raise
        except CheckpointError as error:
            raise click.ClickException(
                f"{error}; if the source was not fetched to the end, fetch it again"
            ) from error
        except ConfigurationError as error:
            raise click.ClickException(str(error)) from error
    click.echo(_summary(report, destination))


class ConversionProgress:
    """A bar on a terminal; in a log, a line per finished file."""

    def __init__(self, err: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._err = err
        self._clock = clock
        self._began_s = clock()
        self._bar: ProgressBar[int] | None = None
        self._total_bytes = 0
        self._num_shards = 0
        self._num_done = 0

    def begin(self, total_bytes: int, num_shards: int) -> None:
        """Take the sizes of what is to come."""
        self._total_bytes, self._num_shards = total_bytes, num_shards
        if self._err.isatty():
            self._bar = click.progressbar(
                length=total_bytes,
                label="Converting",
                file=self._err,
                item_show_func=lambda _: (
                    f"file {min(self._num_done + 1, num_shards)} of {num_shards}"
                ),
            )
            self._bar.__enter__()

    def advance(self, num_bytes: int) -> None:
        """Move the bar by so many bytes of the source."""
        if self._bar is not None:
            self._bar.update(num_bytes)

    def finish_shard(self, file: str, num_bytes: int, *, is_kept: bool) -> None:
        """Count a file."""
        self._num_done += 1
        if self._bar is None:
            how = "kept" if is_kept else f"{self._clock() - self._began_s:.0f} s"
            click.echo(
                f"{file}: {_size(num_bytes)}, file {self._num_done} of {self._num_shards}, {how}",
                file=self._err,
            )

    def say_interrupted(self, destination: Path) -> None:
        """Say what is left of the work, and where."""
        self._close()
        if not self._num_done:
            click.echo("Interrupted before the first file was finished.", file=self._err)
            return
        click.echo(
            f"Interrupted: {self._num_done} of {self._num_shards} files are kept in "
            f"{destination}.partial; run the same command to go on.",
            file=self._err,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the cursor at the start of a line."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


def _summary(report: Report, destination: Path) -> str:
    def row(name: str, before: int, after: int) -> tuple[str, str, str, str]:
        return name, _size(before), _size(after), f"{after / before:.2f}"

    before = report.source_expert_bytes, report.source_rest_bytes
    after = report.expert_bytes, report.rest_bytes
    table = columns(
        [
            ("WEIGHTS", "SOURCE", "RESULT", "RATIO"),
            row("routed experts", before[0], after[0]),
            row("rest", before[1], after[1]),
            row("all", sum(before), sum(after)),
        ],
        right_aligned={1, 2, 3},
    )
    num_files = len(report.manifest.files)
    if report.was_complete:
        return f"{table}\n{destination} was complete: {num_files} files are as its manifest says"
    kept = f", {report.num_kept} of them kept from before" if report.num_kept else ""
    return f"{table}\n{destination}: {num_files} files{kept}"


def _size(num_bytes: int) -> str:
    unit, name = (_GIB, "GiB") if num_bytes >= _GIB else (1 << 20, "MiB")
    return f"{num_bytes / unit:.1f} {name}"
