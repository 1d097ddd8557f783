"""Ops for few rows on a CPU, compiled by numba. `choice.py` decides where they run instead of torch's."""
