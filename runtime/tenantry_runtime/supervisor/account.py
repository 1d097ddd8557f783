"""Whose models and workers those of `workerctl dev` are."""

from __future__ import annotations

from tenantry_runtime.core import TenantId

ACCOUNT = TenantId("dev")
