"""What headers mean to whoever passes them on."""

from __future__ import annotations

HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers of one connection, not of a request or response; RFC 9110, section 7.6.1."""
