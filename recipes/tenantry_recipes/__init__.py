"""How the nano checkpoints are made and judged, and the benchmarks. Not part of any wheel."""
