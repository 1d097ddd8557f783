"""Ids of requests are UUIDs, and no two are the same."""

from __future__ import annotations

import uuid

from tenantry_runtime.edge.worker_routes.ray import NUM_AT_ONCE, Rays


def test_ids_are_random_uuids_as_python_writes_them() -> None:
    rays = Rays()
    ids = [rays.make() for _ in range(3 * NUM_AT_ONCE)]
    assert len(set(ids)) == len(ids)
    for each in ids:
        read = uuid.UUID(each)
        assert (str(read), read.version, read.variant) == (each, 4, uuid.RFC_4122)
