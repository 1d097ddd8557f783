"""What the documentation says of limits is what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenantry_runtime.edge.worker_routes import RouteLimits
from tenantry_runtime.edge.worker_routes.limits import MAX_HEADERS, MAX_INLINE_BYTES
from tenantry_runtime.workers.logs import LogLimits

TEXT = (Path(__file__).parents[4] / "docs" / "workers-serving.md").read_text()


@pytest.mark.parametrize(
    "stated",
    [
        f"{RouteLimits().max_body_bytes // 1_000_000} MB; up to {MAX_INLINE_BYTES >> 10} KiB at once",
        f"{RouteLimits().max_url_bytes >> 10} KiB, {RouteLimits().max_header_bytes >> 10} KiB and "
        f"{MAX_HEADERS} of them",
        f"{RouteLimits().max_requests} of an edge, {RouteLimits().max_requests_each} of an account",
        f"after {RouteLimits().stall_timeout_s:.0f} s",
        f"{LogLimits().records_per_s} records a second, {LogLimits().plain_records_per_s} of them",
        f"{2 * LogLimits().file_bytes >> 20} MiB in all, for a week",
    ],
)
def test_a_stated_limit_is_the_limit(stated: str) -> None:
    assert stated in TEXT
    assert LogLimits().max_age_s == 7 * 86400
