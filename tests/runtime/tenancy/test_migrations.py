from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tenantry_runtime.tenancy import open_store
from tenantry_runtime.tenancy.schema import metadata


@pytest.mark.asyncio
async def test_the_migrations_make_the_tables_that_the_code_uses(tmp_path: Path) -> None:
    async with open_store(tmp_path):
        pass

    engine = sa.create_engine(f"sqlite:///{tmp_path / 'tenantry.db'}")
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()

    assert differences == []
