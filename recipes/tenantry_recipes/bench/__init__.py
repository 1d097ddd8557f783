"""Benchmarks: commands that compare this runtime with others in one run. Never part of a test's verdict."""
