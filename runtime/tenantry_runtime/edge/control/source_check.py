"""Refuse sources that cannot run here before anything of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tenantry_runtime.errors import ScriptRefused

from .modules import PYTHON, Module
from .scanning import scanned

SCAN = Path(__file__).with_name("source_scan.py")

TIMEOUT_S = 30.0

MAX_SOURCE_BYTES = 1 << 20
"""Of one Python file of the tenant's own."""

WITHOUT_PYODIDE = {
    "js": "This runtime is CPython: use `from workers import fetch, Request, Response` for JavaScript's",
    "pyodide": "This runtime is CPython: use `workers.fetch` for requests, and values of Python",
}


class _Finding(msgspec.Struct, frozen=True):
    path: str
    line: int
    kind: str
    text: str


async def check_sources(modules: Sequence[Module], interpreter: str) -> None:
    """Raise `ScriptRefused` for syntax errors and for imports that only Pyodide has.

    The tenant's own files alone: packages often import such where they find themselves in a browser.
    """
    sources = [
        (module.path, _text(module))
        for module in modules
        if module.content_type == PYTHON and module.is_own
    ]
    finding = await _scan(sources, interpreter)
    if finding is None:
        return
    if finding.kind == "syntax":
        raise ScriptRefused(finding.text, path=finding.path, line=finding.line)
    top = finding.text.split(".")[0]
    raise ScriptRefused(
        f"imports {finding.text!r}, which only Pyodide has",
        path=finding.path,
        line=finding.line,
        remedy=WITHOUT_PYODIDE["js" if top == "js" else "pyodide"],
    )


async def _scan(sources: Sequence[tuple[str, str]], interpreter: str) -> _Finding | None:
    try:
        found = await scanned(interpreter, SCAN, msgspec.json.encode(sources), TIMEOUT_S)
    except TimeoutError:
        raise ScriptRefused("the sources take too long to parse") from None
    if found is None:
        raise ScriptRefused(
            "a source cannot be parsed: it is too large or nested too deeply",
            path=sources[0][0] if len(sources) == 1 else "",
        )
    return msgspec.json.decode(found, type=_Finding | None)


def _text(module: Module) -> str:
    if len(module.content) > MAX_SOURCE_BYTES:
        raise ScriptRefused(
            f"has {len(module.content)} bytes; a source has at most {MAX_SOURCE_BYTES}",
            path=module.path,
            remedy="Keep what is no code in a file of another kind",
        )
    try:
        text = module.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = module.content[: error.start].count(b"\n") + 1
        raise ScriptRefused("is not UTF-8", path=module.path, line=line) from error
    zero = text.find("\0")
    if zero >= 0:
        line = text.count("\n", 0, zero) + 1
        raise ScriptRefused("has a zero byte", path=module.path, line=line)
    return text
