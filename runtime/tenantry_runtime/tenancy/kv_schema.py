"""The tables of `kv`.

Keys are the bytes of their UTF-8, which both databases order alike. An entry's value is its last
column: SQLite reads past what stands before another.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from .schema import UNIX_MS, metadata

namespaces = sa.Table(
    "kv_namespaces",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("account_id", sa.ForeignKey("accounts.id"), nullable=False),
    sa.Column("title", sa.String(512), nullable=True, doc="null: deleted, and to be swept away"),
    sa.Column("created_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Column("num_keys", sa.BigInteger, nullable=False, doc="expired ones too, until swept"),
    sa.Column("num_bytes", sa.BigInteger, nullable=False, doc="of all its entries"),
    sa.UniqueConstraint("account_id", "title"),
)

entries = sa.Table(
    "kv_entries",
    metadata,
    sa.Column(
        "namespace_id", sa.ForeignKey("kv_namespaces.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("key", sa.LargeBinary(512), primary_key=True, doc="UTF-8"),
    sa.Column("expires_ms", sa.BigInteger, nullable=True, index=True, doc="null: never"),
    sa.Column("num_bytes", sa.BigInteger, nullable=False, doc="key, metadata and value"),
    sa.Column("metadata", sa.LargeBinary, nullable=True, doc="JSON"),
    sa.Column("value", sa.LargeBinary, nullable=False),
)


def are(namespace_id: str, keys: Sequence[bytes]) -> sa.ColumnElement[bool]:
    """Return the condition for entries of a namespace."""
    return sa.and_(entries.c.namespace_id == namespace_id, entries.c.key.in_(keys))


def counted(namespace_id: str, more_keys: int, more_bytes: int) -> sa.Update:
    """Return the statement that counts entries which come, or go."""
    return (
        sa.update(namespaces)
        .where(namespaces.c.id == namespace_id)
        .values(
            num_keys=namespaces.c.num_keys + more_keys,
            num_bytes=namespaces.c.num_bytes + more_bytes,
        )
    )
