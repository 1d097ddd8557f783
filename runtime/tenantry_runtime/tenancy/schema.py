"""The store's tables, as they are after the newest migration."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData(
    # a name for every constraint, so that a later migration can alter it on any database
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False, comment="Unix time"),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("account_id", sa.ForeignKey("accounts.id"), nullable=False, index=True),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("digest", sa.LargeBinary(32), nullable=False, unique=True, comment="SHA-256"),
    sa.Column("scopes", sa.JSON, nullable=False, comment="list of names"),
    sa.Column("created_ms", sa.BigInteger, nullable=False, comment="Unix time"),
    sa.Column("revoked_ms", sa.BigInteger, nullable=True, comment="Unix time; null: valid"),
)
