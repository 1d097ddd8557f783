"""Plans, limits, usage, incidents, secrets; expiry of tokens."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

PLANS = {
    "unlimited": {},
    "standard": {"quota": {"requests_per_minute": 300}},
    "free": {"daily_neurons": 10_000.0, "quota": {"requests_per_minute": 300}},
}
"""Workers AI's own limits. Who was there before has no limits, as before."""


def upgrade() -> None:
    plans = op.create_table(
        "plans",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("terms", sa.JSON, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
    )
    created_ms = time.time_ns() // 1_000_000
    op.bulk_insert(
        plans,
        [{"id": id, "terms": terms, "created_ms": created_ms} for id, terms in PLANS.items()],
    )
    with op.batch_alter_table("accounts") as accounts:
        accounts.add_column(
            sa.Column("plan_id", sa.String(64), nullable=False, server_default="unlimited")
        )
        accounts.add_column(sa.Column("overrides", sa.JSON, nullable=False, server_default="{}"))
        accounts.add_column(sa.Column("suspended_ms", sa.BigInteger, nullable=True))
        accounts.add_column(sa.Column("deleted_ms", sa.BigInteger, nullable=True))
        accounts.create_foreign_key("fk_accounts_plan_id_plans", "plans", ["plan_id"], ["id"])
        accounts.create_index("ix_accounts_plan_id", ["plan_id"])
    with op.batch_alter_table("accounts") as accounts:
        accounts.alter_column("plan_id", server_default=None)
        accounts.alter_column("overrides", server_default=None)
    with op.batch_alter_table("tokens") as tokens:
        tokens.add_column(sa.Column("expires_ms", sa.BigInteger, nullable=True))
        tokens.add_column(sa.Column("last_used_ms", sa.BigInteger, nullable=True))
    _create_usage()
    _create_limits()
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("time_ms", sa.BigInteger, nullable=False),
        sa.Column("node", sa.String(256), nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("op", sa.String(64), nullable=False),
        sa.Column("logical_page", sa.BigInteger, nullable=True),
        sa.Column("page", sa.BigInteger, nullable=True),
        sa.Column("found", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_incidents"),
    )
    op.create_index("ix_incidents_time_ms", "incidents", ["time_ms"])
    op.create_table(
        "secrets",
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("key_id", sa.String(64), nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "name", name="pk_secrets"),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_secrets_account_id_accounts"
        ),
    )


def _create_usage() -> None:
    def count(name: str) -> sa.Column[int]:
        return sa.Column(name, sa.BigInteger, nullable=False)

    counts = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
    op.create_table(
        "usage",
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("token_id", sa.String(64), nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("worker", sa.String(128), nullable=False),
        sa.Column("worker_version", sa.String(64), nullable=False),
        count("started_ms"),
        count("ended_ms"),
        *map(count, counts),
        *map(count, ("input_price", "cached_price", "output_price", "cost")),
        sa.Column("revision", sa.String(64), nullable=False),
        sa.Column("formats", sa.String(256), nullable=False),
        sa.Column("trace_id", sa.String(32), nullable=False),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name="pk_usage"),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_usage_account_id_accounts"
        ),
    )
    op.create_index("ix_usage_account_id_ended_ms", "usage", ["account_id", "ended_ms"])
    op.create_table(
        "daily_usage",
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("worker", sa.String(128), nullable=False),
        *map(count, ("requests", *counts, "cost")),
        sa.PrimaryKeyConstraint("account_id", "day", "model", "worker", name="pk_daily_usage"),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_daily_usage_account_id_accounts"
        ),
    )


def _create_limits() -> None:
    op.create_table(
        "rates",
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("limit", sa.String(32), nullable=False),
        sa.Column("full_us", sa.BigInteger, nullable=False),
        sa.Column("returned_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "model", "limit", name="pk_rates"),
    )
    op.create_table(
        "edges",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("seen_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_edges"),
    )
    op.create_table(
        "open_requests",
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("edge_id", sa.String(64), nullable=False),
        sa.Column("num_open", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("account_id", "model", "edge_id", name="pk_open_requests"),
        sa.ForeignKeyConstraint(
            ["edge_id"], ["edges.id"], name="fk_open_requests_edge_id_edges", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_open_requests_edge_id", "open_requests", ["edge_id"])


def downgrade() -> None:
    for table in (
        "secrets",
        "incidents",
        "open_requests",
        "edges",
        "rates",
        "daily_usage",
        "usage",
    ):
        op.drop_table(table)
    with op.batch_alter_table("tokens") as tokens:
        tokens.drop_column("last_used_ms")
        tokens.drop_column("expires_ms")
    with op.batch_alter_table("accounts") as accounts:
        accounts.drop_constraint("fk_accounts_plan_id_plans", type_="foreignkey")
        accounts.drop_index("ix_accounts_plan_id")
        for column in ("deleted_ms", "suspended_ms", "overrides", "plan_id"):
            accounts.drop_column(column)
    op.drop_table("plans")
