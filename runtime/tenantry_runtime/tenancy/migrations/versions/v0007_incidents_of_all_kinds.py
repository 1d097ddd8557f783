"""Incidents of all kinds: those of pages, which there were, become one of them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    pages = _taken_out("incidents")
    incidents = op.create_table(
        "incidents",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("began_ms", sa.BigInteger, nullable=False),
        sa.Column("seen_ms", sa.BigInteger, nullable=False),
        sa.Column("ended_ms", sa.BigInteger, nullable=True),
        sa.Column("edge", sa.String(256), nullable=False),
        sa.Column("node", sa.String(256), nullable=False),
        sa.Column("model", sa.String(128), nullable=False),
        sa.Column("request_ids", sa.JSON, nullable=False),
        sa.Column("trace_ids", sa.JSON, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("facts", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_incidents"),
    )
    op.create_index("ix_incidents_began_ms", "incidents", ["began_ms"])
    op.create_index("ix_incidents_kind_began_ms", "incidents", ["kind", "began_ms"])
    tenants = op.create_table(
        "incident_tenants",
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("incident_id", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("account_id", "incident_id", name="pk_incident_tenants"),
        sa.ForeignKeyConstraint(
            ["incident_id"],
            ["incidents.id"],
            name="fk_incident_tenants_incident_id_incidents",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_incident_tenants_incident_id", "incident_tenants", ["incident_id"])
    op.bulk_insert(incidents, [_of_page(page) for page in pages])
    op.bulk_insert(
        tenants, [{"account_id": page["account_id"], "incident_id": page["id"]} for page in pages]
    )


def downgrade() -> None:
    """Only incidents of pages had a place."""
    tenants = {each["incident_id"]: each["account_id"] for each in _taken_out("incident_tenants")}
    incidents = _taken_out("incidents")
    pages = op.create_table(
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
    op.bulk_insert(
        pages,
        [
            {
                **{name: row[name] for name in ("id", "node", "model")},
                "time_ms": row["began_ms"],
                "account_id": tenants[row["id"]],
                "request_id": row["request_ids"][0],
                **row["facts"],
            }
            for row in incidents
            if row["kind"] == "integrity"
        ],
    )


# Any: as the columns have it
def _taken_out(name: str) -> list[dict[str, Any]]:
    """Return a table's rows, and drop it."""
    connection = op.get_bind()
    table = sa.Table(name, sa.MetaData(), autoload_with=connection)
    rows = [dict(row) for row in connection.execute(sa.select(table)).mappings()]
    op.drop_table(name)
    return rows


def _of_page(page: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: page[name] for name in ("id", "node", "model")},
        "kind": "integrity",
        **dict.fromkeys(("began_ms", "seen_ms", "ended_ms"), page["time_ms"]),
        "edge": "",
        "request_ids": [page["request_id"]],
        "trace_ids": [],
        "detail": f"{page['op']}: {', '.join(page['found'])} of a page differed",
        "facts": {name: page[name] for name in ("step", "op", "logical_page", "page", "found")},
    }
