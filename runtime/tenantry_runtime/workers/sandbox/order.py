"""Which order makes a template of a level: what is bound, hidden and readable in its root."""

from __future__ import annotations

import os
from pathlib import Path

from .guest_folder import PACKAGES_OF_OTHERS, link_library
from .level import Layers, Level
from .spec import TemplateSpec
from .wire import Namespaces, TemplateOrder

_DEVICES = ("/dev/null", "/dev/urandom")
_TIME_ZONES = "/usr/share/zoneinfo"
_GUEST = "/guest"
_DEPENDENCIES = "/dependencies"


def template_order(spec: TemplateSpec, level: Level, layers: Layers, folder: Path) -> TemplateOrder:
    """Return the order; without namespaces `library` is made in the folder."""
    namespaces = _namespaces(level, layers)
    library = list(spec.interpreter.path)
    shared = [*spec.interpreter.libraries, *filter(os.path.isdir, [_TIME_ZONES])]
    devices = [device for device in _DEVICES if os.path.exists(device)]
    if namespaces:
        binds = [(path, path) for path in [*library, *shared, *devices]]
        binds.append((str(folder / "guest"), _GUEST))
        path, readable = [*library, _GUEST], [*library, *shared, *devices, _GUEST]
        if spec.dependencies is not None:
            binds.append((spec.dependencies, _DEPENDENCIES))
            path.append(_DEPENDENCIES)
            readable.append(_DEPENDENCIES)
    else:
        binds = []
        links = link_library(spec.interpreter, folder)
        guest = str(folder / "guest")
        own = [guest, *([] if spec.dependencies is None else [spec.dependencies])]
        path = [str(folder / "library"), *library[1:], *own]
        readable = [str(folder / "library"), *links, *library[1:], *shared, *devices, *own]
    return TemplateOrder(
        namespaces=namespaces,
        root=str(folder / "root"),
        binds=_without_nested(binds),
        hidden=_packages_of_others(library) if namespaces else [],
        path=path,
        readable=readable,
        has_landlock=layers.landlock > 0,
        has_filter=layers.filter,
        has_threads=bool(namespaces) or layers.own_users,
        guest=spec.guest.module,
    )


def has_own_users(level: Level, layers: Layers) -> bool:
    """Return whether each isolate is a user of its own."""
    return layers.own_users and level is not Level.USER_NAMESPACE


def _namespaces(level: Level, layers: Layers) -> Namespaces:
    match level:
        case Level.FULL:
            return "own"
        case Level.USER_NAMESPACE:
            return "user"
        case Level.NO_NAMESPACE:
            return ""
        case Level.NONE:
            return "own" if layers.own_namespaces else "user" if layers.user_namespace else ""


def _without_nested(binds: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out what a folder that is bound already has, and what comes twice."""
    kept: dict[str, str] = {}
    for source, target in sorted(binds, key=lambda bind: bind[1]):
        if not any(Path(target).is_relative_to(outer) for outer in kept):
            kept[target] = source
    return [(source, target) for target, source in kept.items()]


def _packages_of_others(library: list[str]) -> list[str]:
    folders = [f"{folder}/{name}" for folder in library for name in PACKAGES_OF_OTHERS]
    return list(filter(os.path.isdir, folders))
