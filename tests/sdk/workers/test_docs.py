"""The worker and the test that `docs/workers-python.md` shows are a project that passes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "workers-python.md"


def test_the_pages_project_passes_its_own_test(tmp_path: Path) -> None:
    worker, application, test = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "entry.py").write_text(worker)
    (tmp_path / "test_entry.py").write_text(test)
    compile(application, "application", "exec")
    plugins = ["-p", "pytest_asyncio.plugin", "-p", "tenantry.workers.testing.plugin"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "ignore", *plugins],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
