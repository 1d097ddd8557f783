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

UNIX_MS = "Unix time in milliseconds"
PICO_USD = "10**-12 USD"

plans = sa.Table(
    "plans",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("terms", sa.JSON, nullable=False, doc="`tenancy.plan.Plan`"),
    sa.Column("created_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
)

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Column("plan_id", sa.ForeignKey("plans.id"), nullable=False, index=True),
    sa.Column("overrides", sa.JSON, nullable=False, doc="keys of `Plan` that beat the plan's"),
    sa.Column("suspended_ms", sa.BigInteger, nullable=True, doc="null: not suspended"),
    sa.Column("deleted_ms", sa.BigInteger, nullable=True, doc="null: not deleted"),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("account_id", sa.ForeignKey("accounts.id"), nullable=False, index=True),
    sa.Column("name", sa.String(256), nullable=False),
    sa.Column("digest", sa.LargeBinary(32), nullable=False, unique=True, doc="SHA-256"),
    sa.Column("scopes", sa.JSON, nullable=False, doc="list of names"),
    sa.Column("created_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Column("expires_ms", sa.BigInteger, nullable=True, doc="null: never"),
    sa.Column("last_used_ms", sa.BigInteger, nullable=True, doc="to the minute"),
    sa.Column("revoked_ms", sa.BigInteger, nullable=True, doc="null: valid"),
)

usage = sa.Table(
    "usage",
    metadata,
    sa.Column("request_id", sa.String(64), primary_key=True),
    sa.Column("account_id", sa.ForeignKey("accounts.id"), nullable=False),
    sa.Column("token_id", sa.String(64), nullable=False),
    sa.Column("model", sa.String(128), nullable=False, doc="canonical id"),
    sa.Column("worker", sa.String(128), nullable=False, doc="empty: none"),
    sa.Column("worker_version", sa.String(64), nullable=False, doc="empty: none"),
    sa.Column("started_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Column("ended_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Column("input_tokens", sa.BigInteger, nullable=False, doc="cached ones too"),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False, doc="reasoning too"),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    sa.Column("input_price", sa.BigInteger, nullable=False, doc=f"{PICO_USD} a token"),
    sa.Column("cached_price", sa.BigInteger, nullable=False, doc=f"{PICO_USD} a token"),
    sa.Column("output_price", sa.BigInteger, nullable=False, doc=f"{PICO_USD} a token"),
    sa.Column("cost", sa.BigInteger, nullable=False, doc=PICO_USD),
    sa.Column("revision", sa.String(64), nullable=False, doc="of the checkpoint; empty: none ran"),
    sa.Column("formats", sa.String(256), nullable=False, doc="of weights and cache, by phase"),
    sa.Column("trace_id", sa.String(32), nullable=False, doc="hexadecimal; empty: none"),
    sa.Column("outcome", sa.String(32), nullable=False),
    sa.Index("ix_usage_account_id_ended_ms", "account_id", "ended_ms"),
)
"""One row per request, never changed: what it is billed by."""

daily_usage = sa.Table(
    "daily_usage",
    metadata,
    sa.Column("account_id", sa.ForeignKey("accounts.id"), primary_key=True),
    sa.Column("day", sa.String(10), primary_key=True, doc="YYYY-MM-DD, UTC, of `ended_ms`"),
    sa.Column("model", sa.String(128), primary_key=True),
    sa.Column("worker", sa.String(128), primary_key=True, doc="empty: none"),
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    sa.Column("cost", sa.BigInteger, nullable=False, doc=PICO_USD),
)
"""Sums of `usage`, changed in the transaction that adds a row there."""

incidents = sa.Table(
    "incidents",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True, doc="of a page: a digest, so kept once"),
    sa.Column("kind", sa.String(32), nullable=False, doc="`incidents.IncidentKind`"),
    sa.Column("began_ms", sa.BigInteger, nullable=False, doc=UNIX_MS, index=True),
    sa.Column("seen_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Column("ended_ms", sa.BigInteger, nullable=True, doc=UNIX_MS),
    sa.Column("edge", sa.String(256), nullable=False, doc="whose view it is"),
    sa.Column("node", sa.String(256), nullable=False, doc="its address"),
    sa.Column("model", sa.String(128), nullable=False),
    sa.Column("request_ids", sa.JSON, nullable=False, doc="list"),
    sa.Column("trace_ids", sa.JSON, nullable=False, doc="list"),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("facts", sa.JSON, nullable=False, doc="by name; which, the kind says"),
    sa.Index("ix_incidents_kind_began_ms", "kind", "began_ms"),
)
"""What went wrong with nodes and tenants (`incidents.IncidentRecord`)."""

incident_tenants = sa.Table(
    "incident_tenants",
    metadata,
    sa.Column("account_id", sa.String(64), primary_key=True),
    sa.Column(
        "incident_id",
        sa.ForeignKey("incidents.id", ondelete="CASCADE"),
        primary_key=True,
        index=True,
    ),
)
"""Whom each befell. A node may name who is no account here."""

rates = sa.Table(
    "rates",
    metadata,
    sa.Column("account_id", sa.String(64), primary_key=True),
    sa.Column("model", sa.String(128), primary_key=True),
    sa.Column("limit", sa.String(32), primary_key=True, doc="requests or tokens, per minute"),
    sa.Column("full_us", sa.BigInteger, nullable=False, doc="Unix time at which all is free again"),
    sa.Column("returned_us", sa.BigInteger, nullable=False, doc="given back so far, in all"),
)
"""Where each tenant stands (`tenancy.limits`)."""

edges = sa.Table(
    "edges",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("seen_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
)
"""Edge processes that give signs of life; what one that is gone had open is void."""

open_requests = sa.Table(
    "open_requests",
    metadata,
    sa.Column("account_id", sa.String(64), primary_key=True),
    sa.Column("model", sa.String(128), primary_key=True),
    sa.Column(
        "edge_id", sa.ForeignKey("edges.id", ondelete="CASCADE"), primary_key=True, index=True
    ),
    sa.Column("num_open", sa.Integer, nullable=False),
)

secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("account_id", sa.ForeignKey("accounts.id"), primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("key_id", sa.String(64), nullable=False, doc="of the key that encrypted it"),
    sa.Column("sealed", sa.LargeBinary, nullable=False, doc="`tenancy.secrets`"),
    sa.Column("updated_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
)

batches = sa.Table(
    "batches",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("account_id", sa.ForeignKey("accounts.id"), nullable=False),
    sa.Column(
        "token_id", sa.String(64), nullable=False, doc="that it was submitted with; empty: none"
    ),
    sa.Column("model", sa.String(128), nullable=False, doc="canonical id"),
    sa.Column("created_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Column("started_ms", sa.BigInteger, nullable=True, doc="null: nothing of it has run"),
    sa.Column("ended_ms", sa.BigInteger, nullable=True, index=True, doc="null: not complete"),
    sa.Column("num_requests", sa.Integer, nullable=False),
    sa.Column("num_done", sa.Integer, nullable=False),
    sa.Column("num_bytes", sa.BigInteger, nullable=False, doc="of its requests"),
    sa.Column("prompt_tokens", sa.BigInteger, nullable=False, doc="of all answers"),
    sa.Column("completion_tokens", sa.BigInteger, nullable=False, doc="of all answers"),
    sa.Column("worker", sa.String(128), nullable=False, server_default="", doc="empty: none"),
    sa.Column(
        "worker_version", sa.String(64), nullable=False, server_default="", doc="empty: none"
    ),
    sa.Index("ix_batches_account_id_ended_ms", "account_id", "ended_ms"),
)

batch_requests = sa.Table(
    "batch_requests",
    metadata,
    sa.Column("batch_id", sa.ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, doc="its place in the batch, from 0"),
    sa.Column("account_id", sa.String(64), nullable=False),
    sa.Column("external_reference", sa.String(256), nullable=True),
    sa.Column("body", sa.LargeBinary, nullable=False, doc="JSON; empty once there is a response"),
    sa.Column("due_ms", sa.BigInteger, nullable=True, doc="may be claimed then; null: done"),
    sa.Column("claim", sa.String(64), nullable=True, doc="of whom it runs at; null: nobody's"),
    sa.Column("num_attempts", sa.Integer, nullable=False),
    sa.Column("num_failures", sa.Integer, nullable=False, doc="attempts that nothing excuses"),
    sa.Column("response", sa.LargeBinary, nullable=True, doc="JSON, as it is printed"),
    sa.Index("ix_batch_requests_account_id_due_ms", "account_id", "due_ms"),
)
"""Requests that wait for spare capacity, and what came of them (`tenancy.batches`)."""

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True, doc="never used again, unlike its name"),
    sa.Column("account_id", sa.ForeignKey("accounts.id"), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Column("modified_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Column("num_versions", sa.Integer, nullable=False, doc="that there ever were"),
    sa.Column("num_deployments", sa.Integer, nullable=False, doc="that there ever were"),
    sa.Column("has_url", sa.Boolean, nullable=False, doc="answers at its own name"),
    sa.Column("has_preview_urls", sa.Boolean, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False, doc="`tenancy.workers.records.Settings`"),
    sa.UniqueConstraint("account_id", "name"),
)

worker_blobs = sa.Table(
    "worker_blobs",
    metadata,
    sa.Column("digest", sa.String(64), primary_key=True, doc="SHA-256, hexadecimal"),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("put_ms", sa.BigInteger, nullable=False, doc=f"{UNIX_MS}, the last time"),
)
"""Files of bundles; a file that many versions have is here once."""

worker_versions = sa.Table(
    "worker_versions",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("worker_id", sa.ForeignKey("workers.id", ondelete="CASCADE"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False, doc="1 for a worker's first"),
    sa.Column("created_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Column("spec", sa.JSON, nullable=False, doc="`workers.spec.WorkerVersion`, without files"),
    sa.Column("notes", sa.JSON, nullable=False, doc="`tenancy.workers.records.Notes`"),
    sa.Column("num_bytes", sa.BigInteger, nullable=False, doc="of its files"),
    sa.Column("startup_ms", sa.Float, nullable=True, doc="null: not imported yet, nobody sees it"),
    sa.UniqueConstraint("worker_id", "number"),
)

worker_files = sa.Table(
    "worker_files",
    metadata,
    sa.Column(
        "version_id", sa.ForeignKey("worker_versions.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("path", sa.String(512), primary_key=True),
    sa.Column("digest", sa.ForeignKey("worker_blobs.digest"), nullable=False, index=True),
    sa.Column("num_bytes", sa.BigInteger, nullable=False),
    sa.Column("content_type", sa.String(64), nullable=False),
)

worker_deployments = sa.Table(
    "worker_deployments",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("worker_id", sa.ForeignKey("workers.id", ondelete="CASCADE"), nullable=False),
    sa.Column("number", sa.Integer, nullable=False, doc="the highest is in force"),
    sa.Column("created_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Column("shares", sa.JSON, nullable=False, doc="list of (version id, percentage)"),
    sa.Column("notes", sa.JSON, nullable=False, doc="`tenancy.workers.records.Notes`"),
    sa.UniqueConstraint("worker_id", "number"),
)

worker_secrets = sa.Table(
    "worker_secrets",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("worker_id", sa.ForeignKey("workers.id", ondelete="CASCADE"), nullable=False),
    sa.Column("account_id", sa.String(64), nullable=False),
    sa.Column("name", sa.String(128), nullable=False),
    sa.Column("key_id", sa.String(64), nullable=False, doc="of the key that encrypted it"),
    sa.Column("sealed", sa.LargeBinary, nullable=False, doc="`tenancy.secrets`"),
    sa.Column("created_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
    sa.Index("ix_worker_secrets_worker_id", "worker_id"),
    sa.Index("ix_worker_secrets_key_id", "key_id"),
)
"""Values, never changed: a new one is a new row, and versions name the one that they have."""

worker_version_secrets = sa.Table(
    "worker_version_secrets",
    metadata,
    sa.Column(
        "version_id", sa.ForeignKey("worker_versions.id", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column(
        "secret_id",
        sa.ForeignKey("worker_secrets.id", ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
)

worker_routes = sa.Table(
    "worker_routes",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("account_id", sa.String(64), nullable=False),
    sa.Column("worker_id", sa.ForeignKey("workers.id", ondelete="CASCADE"), nullable=False),
    sa.Column("pattern", sa.String(512), nullable=False, unique=True, doc="of host and path"),
    sa.Column("host", sa.String(256), nullable=False, doc="of the pattern", index=True),
    sa.Index("ix_worker_routes_worker_id", "worker_id"),
)
"""A pattern is one worker's, of all tenants."""

worker_schedules = sa.Table(
    "worker_schedules",
    metadata,
    sa.Column("worker_id", sa.ForeignKey("workers.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("cron", sa.String(128), primary_key=True),
    sa.Column("created_ms", sa.BigInteger, nullable=False, doc=UNIX_MS),
)

worker_cron_claims = sa.Table(
    "worker_cron_claims",
    metadata,
    sa.Column("account_id", sa.ForeignKey("accounts.id"), primary_key=True),
    sa.Column("worker", sa.String(64), primary_key=True),
    sa.Column("cron", sa.String(128), primary_key=True),
    sa.Column("due_ms", sa.BigInteger, nullable=False, doc=f"{UNIX_MS}, of the latest claimed"),
)
"""Which time of a cron trigger an edge has last taken on, so that no other does (`workers.cron.claims`)."""
