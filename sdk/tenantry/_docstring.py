"""What a docstring says of a function and of each parameter."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SECTION = re.compile(r"(Args|Arguments|Parameters):\s*")
_PARAMETER = re.compile(r"\s+\*{0,2}(\w+)(?: *\([^)]*\))?: *(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    summary: str
    """What stands before the first section, a paragraph a line."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def describe(docstring: str) -> Described:
    """Read a docstring whose parameters, if any, are in a section `Args:`, each indented."""
    lines = docstring.splitlines()
    start = next((i for i, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    paragraphs = "\n".join(lines[:start]).split("\n\n")
    summary = "\n".join(" ".join(each.split()) for each in paragraphs if each.strip())
    return Described(summary=summary, parameters=_parameters(lines[start + 1 :]))


def _parameters(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    indent, name = None, ""
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if line and not depth:
            break
        matched = _PARAMETER.fullmatch(line)
        if matched and indent in (None, depth):
            indent, name = depth, matched[1]
            found[name] = matched[2]
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found
