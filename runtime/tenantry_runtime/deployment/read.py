"""Reads a deployment's file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tenantry_runtime.errors import DeploymentError

from .explain import Step, explain, key
from .file import DeploymentFile
from .misfit import Misfit
from .plan import Deployment
from .resolve import resolve


def load_deployment(path: Path) -> Deployment:
    """Read a deployment and check that its parts fit together.

    Nothing that it names need exist on this machine, except a catalog's file. Raises
    `DeploymentError`, which names the file and the key.
    """
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise DeploymentError(str(path), "", f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeploymentError(str(path), "", f"is no TOML: {error}") from error
    return from_document(document, path)


def from_document(document: Mapping[str, object], path: Path) -> Deployment:
    """Check what a file at `path` says; raise `DeploymentError`."""
    try:
        _check_finite(document, ())
        file = msgspec.convert(document, type=DeploymentFile)
        return resolve(file, path.absolute())
    except msgspec.ValidationError as error:
        raise DeploymentError(str(path), *explain(error, document, DeploymentFile)) from error
    except Misfit as misfit:
        raise DeploymentError(str(path), misfit.key, misfit.problem) from misfit


def _check_finite(value: object, steps: tuple[Step, ...]) -> None:
    """Refuse TOML's `inf` and `nan`, which the processes' JSON cannot say."""
    match value:
        case float() if not math.isfinite(value):
            raise Misfit(key(steps), f"must be a finite number, not {value}")
        case Mapping():
            for name, inner in value.items():
                _check_finite(inner, (*steps, name))
        case list():
            for place, inner in enumerate(value):
                _check_finite(inner, (*steps, place))
