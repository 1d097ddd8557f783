"""Read a `pyproject.toml` of anybody's: a program of its own, of the standard library alone.

It runs in a process of its own, within limits: a key of a hundred thousand dots, which is a short file, keeps
a TOML reader busy for a minute.

| stream | what |
|---|---|
| standard input | the file |
| standard output | JSON: `{problem, requires_python, dependencies}`, each null where there is none |
"""

from __future__ import annotations

import json
import resource
import sys
import tomllib

CPU_S = 2
MEMORY_BYTES = 1 << 30


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    json.dump(scan(sys.stdin.buffer.read()), sys.stdout)


def scan(content: bytes) -> dict[str, object]:
    """Return what a worker's project says."""
    try:
        project = tomllib.loads(content.decode()).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        return {"problem": f"is no TOML: {error}"}
    if not isinstance(project, dict):
        return {"problem": "has a `project` that is no table"}
    wanted, dependencies = project.get("requires-python"), project.get("dependencies", [])
    if not isinstance(wanted, str | None):
        return {"problem": "has a `requires-python` that is no text"}
    if not isinstance(dependencies, list) or not all(
        isinstance(each, str) for each in dependencies
    ):
        return {"problem": "has `dependencies` that are no list of texts"}
    return {"requires_python": wanted, "dependencies": dependencies}


if __name__ == "__main__":
    main()
