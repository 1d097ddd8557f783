"""Workers: their versions, files, deployments, secrets, routes and schedules."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    _create_workers()
    _create_versions()
    _create_deployments()
    _create_secrets()
    _create_triggers()


def downgrade() -> None:
    for table in (
        "worker_schedules",
        "worker_routes",
        "worker_version_secrets",
        "worker_secrets",
        "worker_deployments",
        "worker_files",
        "worker_versions",
        "worker_blobs",
        "workers",
    ):
        op.drop_table(table)


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("modified_ms", sa.BigInteger, nullable=False),
        sa.Column("num_versions", sa.Integer, nullable=False),
        sa.Column("num_deployments", sa.Integer, nullable=False),
        sa.Column("has_url", sa.Boolean, nullable=False),
        sa.Column("has_preview_urls", sa.Boolean, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_workers_account_id_accounts"
        ),
        sa.UniqueConstraint("account_id", "name", name="uq_workers_account_id_name"),
    )
    op.create_table(
        "worker_blobs",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("put_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_worker_blobs"),
    )


def _create_versions() -> None:
    op.create_table(
        "worker_versions",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("worker_id", sa.String(32), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("spec", sa.JSON, nullable=False),
        sa.Column("notes", sa.JSON, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("startup_ms", sa.Float, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_worker_versions"),
        _of_worker("worker_versions"),
        sa.UniqueConstraint("worker_id", "number", name="uq_worker_versions_worker_id_number"),
    )
    op.create_table(
        "worker_files",
        sa.Column("version_id", sa.String(36), nullable=False),
        sa.Column("path", sa.String(512), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("content_type", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("version_id", "path", name="pk_worker_files"),
        _of_version("worker_files"),
        sa.ForeignKeyConstraint(
            ["digest"], ["worker_blobs.digest"], name="fk_worker_files_digest_worker_blobs"
        ),
    )
    op.create_index("ix_worker_files_digest", "worker_files", ["digest"])


def _create_deployments() -> None:
    op.create_table(
        "worker_deployments",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("worker_id", sa.String(32), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("shares", sa.JSON, nullable=False),
        sa.Column("notes", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_worker_deployments"),
        _of_worker("worker_deployments"),
        sa.UniqueConstraint("worker_id", "number", name="uq_worker_deployments_worker_id_number"),
    )


def _create_secrets() -> None:
    op.create_table(
        "worker_secrets",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("worker_id", sa.String(32), nullable=False),
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("key_id", sa.String(64), nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_worker_secrets"),
        _of_worker("worker_secrets"),
    )
    op.create_index("ix_worker_secrets_worker_id", "worker_secrets", ["worker_id"])
    op.create_index("ix_worker_secrets_key_id", "worker_secrets", ["key_id"])
    op.create_table(
        "worker_version_secrets",
        sa.Column("version_id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("secret_id", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("version_id", "name", name="pk_worker_version_secrets"),
        _of_version("worker_version_secrets"),
        sa.ForeignKeyConstraint(
            ["secret_id"],
            ["worker_secrets.id"],
            name="fk_worker_version_secrets_secret_id_worker_secrets",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_worker_version_secrets_secret_id", "worker_version_secrets", ["secret_id"])


def _create_triggers() -> None:
    op.create_table(
        "worker_routes",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("account_id", sa.String(64), nullable=False),
        sa.Column("worker_id", sa.String(32), nullable=False),
        sa.Column("pattern", sa.String(512), nullable=False),
        sa.Column("host", sa.String(256), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_worker_routes"),
        _of_worker("worker_routes"),
        sa.UniqueConstraint("pattern", name="uq_worker_routes_pattern"),
    )
    op.create_index("ix_worker_routes_worker_id", "worker_routes", ["worker_id"])
    op.create_index("ix_worker_routes_host", "worker_routes", ["host"])
    op.create_table(
        "worker_schedules",
        sa.Column("worker_id", sa.String(32), nullable=False),
        sa.Column("cron", sa.String(128), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("worker_id", "cron", name="pk_worker_schedules"),
        _of_worker("worker_schedules"),
    )


def _of_worker(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["worker_id"], ["workers.id"], name=f"fk_{table}_worker_id_workers", ondelete="CASCADE"
    )


def _of_version(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["version_id"],
        ["worker_versions.id"],
        name=f"fk_{table}_version_id_worker_versions",
        ondelete="CASCADE",
    )
