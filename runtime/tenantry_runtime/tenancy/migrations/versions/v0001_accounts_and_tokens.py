"""Accounts, and tokens by digest."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False, doc="Unix time"),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False, doc="SHA-256"),
        sa.Column("scopes", sa.JSON, nullable=False, doc="list of names"),
        sa.Column("created_ms", sa.BigInteger, nullable=False, doc="Unix time"),
        sa.Column("revoked_ms", sa.BigInteger, nullable=True, doc="Unix time; null: valid"),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_tokens_account_id"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
    )
    op.create_index("ix_tokens_account_id", "tokens", ["account_id"])


def downgrade() -> None:
    op.drop_table("tokens")
    op.drop_table("accounts")
