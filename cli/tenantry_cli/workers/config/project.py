"""A worker as its configuration describes it, in one environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from .errors import ConfigError
from .find import PYPROJECT, ConfigFile
from .keys import INHERITED, QUIET, REFUSED, REFUSED_AND_INHERITED, TOP_LEVEL, UNHEEDED
from .nearest import nested_unknown_keys, unknown_key
from .spec import PythonModules, Route, Rule, Spec

_WORKER_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]{0,62}")
_PYTHON = re.compile("`([^`]*)`")
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
_WHERE = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What is deployed, and how."""

    root: Path
    """The folder of the configuration."""
    source: str
    """What messages call the configuration."""
    name: str
    environment: str | None = None
    main: Path | None = None
    """None: it is not said."""
    compatibility_date: str = ""
    compatibility_flags: tuple[str, ...] = ()
    account_id: str | None = None
    workers_dev: bool | None = None
    preview_urls: bool | None = None
    routes: tuple[Route, ...] | None = None
    """None: those that are there stay."""
    crons: tuple[str, ...] | None = None
    """None: those that are there stay."""
    # Any: JSON, as the control plane has it
    bindings: tuple[dict[str, Any], ...] = ()
    """A KV namespace that is yet to be made has no `namespace_id`."""
    required_secrets: tuple[str, ...] = ()
    limits: dict[str, Any] | None = None
    observability: dict[str, Any] | None = None
    python_modules: PythonModules = field(default_factory=PythonModules)
    rules: tuple[Rule, ...] = ()
    keep_vars: bool = False
    isolation: str | None = None
    warnings: tuple[str, ...] = ()


def load_project(
    file: ConfigFile, *, environment: str | None = None, name: str | None = None
) -> Project:
    """Make a project of a file. `name` beats the file's. Raises ConfigError with all that is wrong."""
    _refuse(file.values, file.source, "", only=REFUSED_AND_INHERITED if environment else None)
    warnings = [f"{path.name} is there too, and is not read" for path in file.ignored]
    warnings += _warnings(file.values, "", is_top_level=True)
    values, notes = _in_environment(file, environment)
    spec = _spec(values, file.source)
    if file.path.name == PYPROJECT and spec.name is None and environment is None:
        spec = msgspec.structs.replace(spec, name=as_worker_name(file.project_name))
    return _project(file, spec, environment, name, (*warnings, *notes))


def check_name(name: str, source: str) -> str:
    """Return a worker's name, or raise ConfigError that says what it may be."""
    if not _WORKER_NAME.fullmatch(name):
        raise ConfigError(
            source,
            [
                f"name: {name!r} is not a worker's name: at most 63 of a-z, 0-9, - and _, and no - first"
            ],
        )
    return name


def _project(
    file: ConfigFile,
    spec: Spec,
    environment: str | None,
    name: str | None,
    warnings: tuple[str, ...],
) -> Project:
    name = name or spec.name
    if name is None:
        raise ConfigError(file.source, ["it has no name; add one, or say --name"])
    root = file.path.parent
    return Project(
        root=root,
        source=file.source,
        name=check_name(name, file.source),
        environment=environment,
        main=None if spec.main is None else root / spec.main,
        compatibility_date=spec.compatibility_date,
        compatibility_flags=spec.compatibility_flags,
        account_id=spec.account_id,
        workers_dev=spec.workers_dev,
        preview_urls=spec.preview_urls,
        routes=_routes(spec),
        crons=spec.triggers.crons,
        bindings=_bindings(spec, file.source),
        required_secrets=spec.secrets.required,
        limits=None if spec.limits is None else msgspec.to_builtins(spec.limits),
        observability=spec.observability,
        python_modules=spec.python_modules,
        rules=spec.rules,
        keep_vars=spec.keep_vars,
        isolation=spec.isolation,
        warnings=warnings,
    )


def _in_environment(
    file: ConfigFile, environment: str | None
) -> tuple[dict[str, object], list[str]]:
    """Return the values that hold in an environment, and what to warn of."""
    top = {key: value for key, value in file.values.items() if key != "env"}
    if not environment:
        return top, []
    sections = file.values.get("env")
    named = cast("dict[str, object]", sections) if isinstance(sections, dict) else {}
    section = named.get(environment)
    if not isinstance(section, dict):
        there = ", ".join(sorted(named)) or "none"
        raise ConfigError(
            file.source, [f"there is no environment {environment!r}; there are: {there}"]
        )
    own = cast("dict[str, object]", section)
    _refuse(own, file.source, f"env.{environment}.")
    values = {key: value for key, value in top.items() if key in INHERITED} | own
    values["keep_vars"] = top.get("keep_vars", False)
    if {"route", "routes"} & own.keys():
        values = {
            key: value for key, value in values.items() if key not in {"route", "routes"} - set(own)
        }
    if "name" not in own:
        stem = top.get("name") or as_worker_name(file.project_name)
        if isinstance(stem, str):
            values["name"] = f"{stem}-{environment}"
    missing = [
        f"{key} stands at the top level, and not in env.{environment}, which does not inherit it"
        for key in _bindings_keys(top)
        if key not in own
    ]
    return values, [*_warnings(own, f"env.{environment}", is_top_level=False), *missing]


def _bindings_keys(top: Mapping[str, object]) -> list[str]:
    read = set(Spec.__struct_fields__)
    return [key for key in top if key in read - INHERITED - TOP_LEVEL and top[key]]


def _refuse(
    values: Mapping[str, object],
    source: str,
    prefix: str,
    *,
    only: frozenset[str] | None = None,
) -> None:
    problems = [
        f"{prefix}{key}: {what} cannot be had here; {remedy}; then take {key} out"
        for key, (what, remedy) in REFUSED.items()
        # `durable_objects: {bindings: []}` is as good as nothing
        if key in values and not _is_empty(values[key]) and (only is None or key in only)
    ]
    if problems:
        raise ConfigError(source, problems)


def _is_empty(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_empty(each) for each in cast("dict[str, object]", value).values())
    return not value


def _warnings(values: Mapping[str, object], prefix: str, *, is_top_level: bool) -> list[str]:
    known = {
        *Spec.__struct_fields__,
        *REFUSED,
        *UNHEEDED,
        *QUIET,
        *({"env"} if is_top_level else ()),
    }
    unknown = [unknown_key(prefix, key, known) for key in values if key not in known]
    nested = [
        f"{prefix}.{warning}" if prefix else warning
        for warning in nested_unknown_keys(values, Spec)
    ]
    unheeded = [
        f"{key} has no effect: {why}"
        for key, why in UNHEEDED.items()
        if not _is_empty(values.get(key))
    ]
    return [*unknown, *nested, *unheeded]


def _spec(values: Mapping[str, object], source: str) -> Spec:
    read = {key: value for key, value in values.items() if key in Spec.__struct_fields__}
    try:
        return msgspec.convert(read, Spec)
    except msgspec.ValidationError as error:
        raise ConfigError(source, [_as_problem(str(error))]) from error


def _as_problem(message: str) -> str:
    """Turn msgspec's "Expected `str`, got `int` - at `$.main`" into "main: expected text, …"."""
    where = _WHERE.search(message)
    said = message[: where.start()] if where else message
    said = _PYTHON.sub(lambda types: _in_words(types[1]), said)
    said = said[:1].lower() + said[1:]
    return f"{where['path']}: {said}" if where and where["path"] else said


def _in_words(types: str) -> str:
    """Return what a reader of JSON calls "str | null"; that a key may be left out is known."""
    named = [_WORDS.get(each, each) for each in types.split(" | ") if each != "null"]
    return " or ".join(named) or "nothing"


def _routes(spec: Spec) -> tuple[Route, ...] | None:
    said = spec.routes if spec.routes is not None else None if spec.route is None else (spec.route,)
    if said is None:
        return None
    return tuple(Route(pattern=route) if isinstance(route, str) else route for route in said)


# Any: JSON, as the control plane has it
def _bindings(spec: Spec, source: str) -> tuple[dict[str, Any], ...]:
    bindings: list[dict[str, Any]] = []
    for namespace in spec.kv_namespaces:
        bindings.append({"name": namespace.binding, "type": "kv_namespace"})
        if namespace.id is not None:
            bindings[-1]["namespace_id"] = namespace.id
    for service in spec.services:
        bindings.append({"name": service.binding, "type": "service", "service": service.service})
        if service.entrypoint is not None:
            bindings[-1]["entrypoint"] = service.entrypoint
    if spec.ai is not None:
        bindings.append({"name": spec.ai.binding, "type": "ai"})
    if spec.version_metadata is not None:
        bindings.append({"name": spec.version_metadata.binding, "type": "version_metadata"})
    bindings += [variable(name, value) for name, value in spec.vars.items()]
    names = [binding["name"] for binding in bindings]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(source, [f"{name}: two bindings have this name" for name in twice])
    return tuple(bindings)


def variable(name: str, value: object) -> dict[str, Any]:
    """Return the binding of a variable: text, or JSON that is not."""
    if isinstance(value, str):
        return {"name": name, "type": "plain_text", "text": value}
    return {"name": name, "type": "json", "json": value}


def as_worker_name(name: str) -> str | None:
    """Return a name of a worker for a project, or a folder; None: nothing of it can be in one."""
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-") or None
