"""Which ids and names the store takes."""

from __future__ import annotations

import re

from tenantry_runtime.errors import InvalidInput

MAX_ID_CHARS = 64
MAX_NAME_CHARS = 256

# they stand in paths, in headers and in tables of other systems, some of which ignore case
_ID = re.compile(r"[a-z0-9][a-z0-9_-]*")


def check_id(kind: str, id: str) -> None:
    """Raise `InvalidInput` for what may not be the id of an account or plan."""
    if len(id) > MAX_ID_CHARS or _ID.fullmatch(id) is None:
        raise InvalidInput(
            kind,
            f"{id[: 2 * MAX_ID_CHARS]!r} is no id: 1 to {MAX_ID_CHARS} of the letters a to z, digits, "
            "- and _, the first a letter or digit",
        )


def check_name(name: str) -> None:
    """Raise `InvalidInput` for a name that is empty, too long, or of more than one line."""
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise InvalidInput(
            "name", f"must be 1 to {MAX_NAME_CHARS} printable characters, not {name[:80]!r}"
        )
