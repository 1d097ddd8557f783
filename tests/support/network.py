"""Whom processes are connected to."""

from __future__ import annotations

import ipaddress
import os
import re
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_ESTABLISHED = "01"


def remote_peers(pids: Iterable[int]) -> set[str]:
    """Return the addresses beyond this machine that the processes have TCP connections to."""
    remote: set[str] = set()
    for pid in pids:
        sockets, peers = _sockets(pid), _peers(pid)
        remote |= {peers[socket] for socket in sockets & peers.keys()}
    return {peer for peer in remote if not ipaddress.ip_address(peer).is_loopback}


def _sockets(pid: int) -> set[str]:
    sockets: set[str] = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        # it may have been closed meanwhile
        with suppress(FileNotFoundError):
            if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(each)):
                sockets.add(found[1])
    return sockets


def _peers(pid: int) -> dict[str, str]:
    """Return the peers of established connections by their sockets."""
    peers: dict[str, str] = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _ESTABLISHED:
                peers[fields[9]] = _address(fields[2].partition(":")[0])
    return peers


def _address(words: str) -> str:
    """Read the kernel's form: words of four bytes in this machine's own order."""
    values = [int(words[at : at + 8], 16) for at in range(0, len(words), 8)]
    address = ipaddress.ip_address(struct.pack(f"={len(values)}I", *values))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
