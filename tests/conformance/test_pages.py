"""The pages about the SDK: their code runs as it stands, and prints what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.dev_server import DevServer

pytestmark = pytest.mark.conformance

PAGES = Path(__file__).resolve().parents[2] / "docs" / "sdk"
PROGRAM = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
PATIENCE_S = 60.0


def programs() -> list[tuple[str, str, str]]:
    """Return each program with its page and what it is said to print."""
    return [
        (f"{page.name} {number}", program, printed)
        for page in sorted(PAGES.glob("*.md"))
        for number, (program, printed) in enumerate(PROGRAM.findall(page.read_text()))
    ]


def test_every_page_but_the_index_has_a_program() -> None:
    with_programs = {name.split()[0] for name, _, _ in programs()}
    assert with_programs == {page.name for page in PAGES.glob("*.md")} - {"README.md"}
    index = (PAGES / "README.md").read_text()
    assert all(f"({name})" in index for name in with_programs)


@pytest.mark.parametrize(
    ("page", "program", "printed"), programs(), ids=[name for name, _, _ in programs()]
)
def test_a_program_prints_what_its_page_says(
    server: DevServer, page: str, program: str, printed: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (ran.returncode, ran.stdout) == (0, printed), f"{page}:\n{ran.stderr}"
