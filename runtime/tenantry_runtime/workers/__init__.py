"""Tenants' workers: isolates, what they may call, and what is kept of them."""
