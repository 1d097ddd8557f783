"""Look through Python sources without running them: a program of its own, of the standard library alone.

It runs in the isolates' interpreter, so that syntax is judged by what will run it, and in a process
of its own: a source may be written such that parsing it takes the interpreter down.

| stream | what |
|---|---|
| standard input | JSON: a list of (path, source) |
| standard output | JSON: null, or what is wrong with the first file that has something: path, line, kind, text |
"""

from __future__ import annotations

import ast
import json
import resource
import sys
from collections import deque
from collections.abc import Iterator

CPU_S = 10
MEMORY_BYTES = 2 << 30

FOREIGN = {"js", "pyodide", "_pyodide", "pyodide_js", "_pyodide_core"}
"""Modules that only Pyodide has."""

CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for path, source in json.load(sys.stdin):
        found = scan(path, source)
        if found is not None:
            json.dump(found, sys.stdout)
            return
    json.dump(None, sys.stdout)


def scan(path: str, source: str) -> dict[str, object] | None:
    """Return what is wrong with a file, or None."""
    try:
        tree = ast.parse(source, path)
    except SyntaxError as error:
        line, text = error.lineno or 1, f"{type(error).__name__}: {error.msg}"
        return {"path": path, "line": line, "kind": "syntax", "text": text}
    except (ValueError, RecursionError, MemoryError) as error:
        return {"path": path, "line": 1, "kind": "syntax", "text": f"cannot be parsed: {error}"}
    for line, name in imports(tree):
        if name.split(".")[0] in FOREIGN:
            return {"path": path, "line": line, "kind": "foreign", "text": name}
    return None


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and module of imports that must succeed for the file to run."""
    waiting = deque([tree])
    while waiting:
        node = waiting.popleft()
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
        elif isinstance(node, ast.Try) and any(map(catches, node.handlers)):
            waiting += [*node.handlers, *node.orelse, *node.finalbody]
        elif isinstance(node, ast.If) and is_for_types(node.test):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def catches(handler: ast.ExceptHandler) -> bool:
    """Say whether a handler is for an import that fails."""
    caught = handler.type
    if caught is None:
        return True
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(isinstance(name, ast.Name) and name.id in CAUGHT for name in names)


def is_for_types(test: ast.expr) -> bool:
    """Say whether a condition is `TYPE_CHECKING`."""
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


if __name__ == "__main__":
    main()
