"""Namespaces of keys and values; batches that workers submit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "kv_namespaces",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("title", sa.String(512), nullable=True),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("num_keys", sa.BigInteger, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_kv_namespaces"),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_kv_namespaces_account_id_accounts"
        ),
        sa.UniqueConstraint("account_id", "title", name="uq_kv_namespaces_account_id_title"),
    )
    op.create_table(
        "kv_entries",
        sa.Column("namespace_id", sa.String(64), nullable=False),
        sa.Column("key", sa.LargeBinary(512), nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=True),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("metadata", sa.LargeBinary, nullable=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("namespace_id", "key", name="pk_kv_entries"),
        sa.ForeignKeyConstraint(
            ["namespace_id"],
            ["kv_namespaces.id"],
            name="fk_kv_entries_namespace_id_kv_namespaces",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_kv_entries_expires_ms", "kv_entries", ["expires_ms"])
    for name, length in (("worker", 128), ("worker_version", 64)):
        column = sa.Column(name, sa.String(length), nullable=False, server_default="")
        op.add_column("batches", column)


def downgrade() -> None:
    with op.batch_alter_table("batches") as batches:
        batches.drop_column("worker_version")
        batches.drop_column("worker")
    op.drop_table("kv_entries")
    op.drop_table("kv_namespaces")
