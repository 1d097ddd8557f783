"""Which member serves a request: session affinity, known prefixes, load, health.

Pure: no clock, no I/O. The edge and the simulator run the same objects.
"""
