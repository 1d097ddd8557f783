"""Which packages a worker may ask for: names and versions, to be had as wheels from the operator's index.

| asked for | |
|---|---|
| `fastapi`, `pydantic>=2.7,<3`, `starlette[full]; python_version >= "3.11"` | looked for in the index |
| `x @ https://…`, `x @ file:…`, `git+https://…`, `./folder` | refused: where it comes from is the operator's to say |
| `-r file`, `--index-url …`, `--extra-index-url …` | refused, for the same reason |
| what the runtime has in every isolate (`PROVIDED`) | left out: it is there |
"""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tenantry_runtime.errors import DependenciesRefused

MAX_REQUIREMENTS = 100
MAX_REQUIREMENT_CHARS = 512

PROVIDED = frozenset({"workers-py", "workers-runtime-sdk", "tenantry"})
"""Tools and types of Cloudflare's, and the SDK itself: `workers` is there without them."""


def read_requirements(asked: Sequence[str]) -> tuple[Requirement, ...]:
    """Return what has to be looked for, in the order of the names.

    Raises `DependenciesRefused`, naming the requirement and what to do.
    """
    if len(asked) > MAX_REQUIREMENTS:
        raise DependenciesRefused(f"{len(asked)} dependencies; {MAX_REQUIREMENTS} are allowed")
    wanted = [requirement for line in asked if (requirement := _read(line)) is not None]
    return tuple(sorted(wanted, key=lambda each: (canonicalize_name(each.name), str(each))))


def _read(line: str) -> Requirement | None:
    text = line.partition(" #")[0].strip()
    if not text or text.startswith("#"):
        return None
    if len(text) > MAX_REQUIREMENT_CHARS:
        raise DependenciesRefused(f"{text[:60]!r}…: longer than a requirement can be")
    if text.startswith("-"):
        raise DependenciesRefused(
            f"{text!r}: options are the operator's; list names and versions alone"
        )
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        if "://" in text or text.startswith((".", "/", "~")):
            raise _from_elsewhere(text) from None
        raise DependenciesRefused(f"{text!r} is no requirement of a package") from None
    if requirement.url is not None:
        raise _from_elsewhere(text)
    return None if canonicalize_name(requirement.name) in PROVIDED else requirement


def _from_elsewhere(text: str) -> DependenciesRefused:
    return DependenciesRefused(
        f"{text!r}: packages come from the operator's index alone; publish a wheel there, or put the "
        "package's files beside the worker's"
    )
