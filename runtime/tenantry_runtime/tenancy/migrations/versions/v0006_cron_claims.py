"""Which times of cron triggers have been taken on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "worker_cron_claims",
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("worker", sa.String(64), nullable=False),
        sa.Column("cron", sa.String(128), nullable=False),
        sa.Column("due_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "worker", "cron", name="pk_worker_cron_claims"),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_worker_cron_claims_account_id_accounts"
        ),
    )


def downgrade() -> None:
    op.drop_table("worker_cron_claims")
