"""Why a benchmark gives no figures."""

from __future__ import annotations


class BenchmarkError(Exception):
    """No figures: a contender failed, or does not compute what the others do."""
