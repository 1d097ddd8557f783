"""The HTTP process: API dialects in front of nodes. No torch."""
