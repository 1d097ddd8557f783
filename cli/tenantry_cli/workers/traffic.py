"""How traffic is split among versions, as command lines say it."""

from __future__ import annotations

import math

import click


def split_of(
    specs: tuple[str, ...], version_ids: tuple[str, ...], percentages: tuple[float, ...]
) -> dict[str, float]:
    """Return percentages, 100 in all, by versions. Raises UsageError.

    `specs` are `ID@10%`, `ID@10` or `ID`. Versions without a percentage share what is left.
    """
    said = [_parsed(spec) for spec in specs]
    if len(percentages) > len(version_ids):
        raise click.UsageError("each --percentage is of a --version-id")
    shares = (*percentages, *[None] * (len(version_ids) - len(percentages)))
    said += zip(version_ids, shares, strict=True)
    if not said:
        raise click.UsageError("which versions? `workerctl versions list` lists them")
    split = dict(said)
    if len(split) != len(said):
        raise click.UsageError("a version comes twice")
    given = sum(share for share in split.values() if share is not None)
    open_ids = [version_id for version_id, share in split.items() if share is None]
    if not open_ids and not math.isclose(given, 100, abs_tol=0.01):
        raise click.UsageError(f"the percentages are {given:g} in all; they must be 100")
    if open_ids and given >= 100:
        raise click.UsageError(f"nothing is left for {open_ids[0]}")
    rest = (100 - given) / len(open_ids) if open_ids else 0.0
    return {version_id: rest if share is None else share for version_id, share in split.items()}


def _parsed(spec: str) -> tuple[str, float | None]:
    version_id, at, share = spec.partition("@")
    if not at:
        return version_id, None
    try:
        percentage = float(share.removesuffix("%"))
    except ValueError:
        percentage = math.nan
    if not 0 <= percentage <= 100:
        raise click.UsageError(f"{spec}: it must be VERSION@PERCENT, as in {version_id}@10%")
    return version_id, percentage
