"""One file per op: launcher, checks and the PyTorch reference. Knows nothing of tenants."""
