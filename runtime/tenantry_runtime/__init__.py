"""The multi-tenant runtime: edge, nodes, engine, models. ARCHITECTURE.md follows one request through it."""
