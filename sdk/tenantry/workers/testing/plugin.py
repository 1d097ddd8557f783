"""The pytest plugin: where nothing else provides `workers`, it is `tenantry.workers`.

So a test may import a worker's modules as they are. Where Cloudflare's own SDK is installed, that one
is found first; `open_worker` runs a worker with this module all the same.
"""

from __future__ import annotations

from typing import Any

from tenantry.workers._aliases import install_aliases


def pytest_configure(config: Any) -> None:
    """Make the names importable, behind all others."""
    install_aliases(is_last=True)
