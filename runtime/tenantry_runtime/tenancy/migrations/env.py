"""What Alembic runs to set itself up: the connection comes from the caller."""

from __future__ import annotations

from alembic import context

from tenantry_runtime.tenancy.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite cannot alter a column in place
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
