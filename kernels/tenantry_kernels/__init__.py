"""One file per op: launcher, checks and the PyTorch reference; compiled forms for CPUs in `cpu/`.

`choice.py` says which of the two computes. Knows nothing of tenants.
"""
