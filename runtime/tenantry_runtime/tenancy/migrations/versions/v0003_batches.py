"""Batches of requests that wait for spare capacity."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("token_id", sa.String(64), nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("started_ms", sa.BigInteger, nullable=True),
        sa.Column("ended_ms", sa.BigInteger, nullable=True),
        sa.Column("num_requests", sa.Integer, nullable=False),
        sa.Column("num_done", sa.Integer, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_batches"),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_batches_account_id_accounts"
        ),
    )
    op.create_index("ix_batches_account_id_ended_ms", "batches", ["account_id", "ended_ms"])
    op.create_index("ix_batches_ended_ms", "batches", ["ended_ms"])
    op.create_table(
        "batch_requests",
        sa.Column("batch_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("external_reference", sa.String(256), nullable=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("due_ms", sa.BigInteger, nullable=True),
        sa.Column("claim", sa.String(64), nullable=True),
        sa.Column("num_attempts", sa.Integer, nullable=False),
        sa.Column("num_failures", sa.Integer, nullable=False),
        sa.Column("response", sa.LargeBinary, nullable=True),
        sa.PrimaryKeyConstraint("batch_id", "number", name="pk_batch_requests"),
        sa.ForeignKeyConstraint(
            ["batch_id"],
            ["batches.id"],
            name="fk_batch_requests_batch_id_batches",
            ondelete="CASCADE",
        ),
    )
    op.create_index(
        "ix_batch_requests_account_id_due_ms", "batch_requests", ["account_id", "due_ms"]
    )


def downgrade() -> None:
    op.drop_table("batch_requests")
    op.drop_table("batches")
