"""The client of a Tenantry runtime."""
