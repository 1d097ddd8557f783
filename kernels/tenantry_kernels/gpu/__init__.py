"""Triton kernels for Hopper, one op per file; nothing on the CPU's serving path imports this."""
