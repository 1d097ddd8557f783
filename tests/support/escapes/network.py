"""Networks: any socket but the one that the isolate was given."""

from __future__ import annotations

from .attempt import Expected, attempt, got

NETWORK = [
    attempt(
        "connect to the machine",
        "result = connect(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', facts['port']))",
    ),
    attempt(
        "connect to the machine by IPv6",
        "result = connect(socket.AF_INET6, socket.SOCK_STREAM, ('::1', facts['port']))",
    ),
    attempt(
        "connect to the cloud's metadata",
        "result = connect(socket.AF_INET, socket.SOCK_STREAM, ('169.254.169.254', 80))",
    ),
    attempt(
        "send a datagram",
        "result = socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))",
    ),
    attempt("open a raw socket", "result = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    attempt("ping", "result = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)"),
    attempt("listen", "result = socket.create_server(('127.0.0.1', 0))"),
    attempt("look a name up", "result = socket.getaddrinfo('localhost', 80)"),
    attempt(
        "connect to a Unix socket",
        "result = connect(socket.AF_UNIX, socket.SOCK_STREAM, facts['unix_path'])",
    ),
    attempt(
        "connect to an abstract Unix socket",
        "result = connect(socket.AF_UNIX, socket.SOCK_STREAM, '\\0' + facts['abstract'])",
    ),
    attempt("talk to the kernel by netlink", "result = socket.socket(socket.AF_NETLINK, 3, 0)"),
    attempt("talk to the hypervisor", "result = socket.socket(socket.AF_VSOCK, 1)"),
    attempt("use the kernel's ciphers", "result = socket.socket(socket.AF_ALG, 5)"),
    attempt("make a pair of another family", "result = socket.socketpair(socket.AF_INET)"),
    attempt(
        "connect its own stream elsewhere",
        "own = socket.socket(fileno=facts['descriptor']); own.connect('\\0' + facts['abstract'])",
    ),
    attempt(
        "open its stream's other end",
        "own = socket.socket(fileno=facts['descriptor']); result = own.getsockopt(1, 77, 4)",
    ),
    attempt(
        "filter packets by a program",
        "own = socket.socket(fileno=facts['descriptor']); own.setsockopt(1, 26, bytes(16))",
    ),
    attempt(
        "see who is at its stream's other end",
        "own = socket.socket(fileno=facts['descriptor']); result = own.getsockopt(1, 17, 12)",
    ),
    attempt(
        "send out of band",
        "pair = socket.socketpair(); result = pair[0].send(b'x', socket.MSG_OOB)",
    ),
    attempt(
        "receive out of band",
        "pair = socket.socketpair(); result = pair[0].recv(1, socket.MSG_OOB | socket.MSG_DONTWAIT)",
        Expected(answer="PermissionError: .*"),
    ),
    attempt(
        "receive descriptors",
        "pair = socket.socketpair(); pair[0].send(b'x'); result = pair[1].recvmsg(1, 64)",
    ),
    attempt("make a pair for itself", "result = len(socket.socketpair())", got("2")),
]
