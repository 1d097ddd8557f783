"""What stays until a process ends is not looked through again and again."""

from __future__ import annotations

import gc

from tenantry_runtime.garbage import collected_rarely


def test_what_was_there_before_is_not_looked_at_again() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with collected_rarely():
        assert gc.get_freeze_count() > 1000
        assert gc.get_threshold()[0] > before[0][0]
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
