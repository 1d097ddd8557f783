"""Other tenants: their files, sockets, memory and secrets. The neighbor runs throughout."""

from __future__ import annotations

from .attempt import DENIED, Expected, attempt, got

TENANTS = [
    attempt(
        "list another tenant's files",
        "result = os.listdir('/tmp')",
        got(r"\[\]"),
        no_namespace=DENIED,
    ),
    attempt("read another tenant's file", "result = open('/tmp/of-the-neighbor').read()"),
    attempt(
        "open another tenant's descriptors",
        "result = os.listdir(f'/proc/{facts[\"neighbor_pid\"]}/fd')",
    ),
    attempt(
        "open another tenant's stream",
        "result = open(f'/proc/{facts[\"neighbor_pid\"]}/fd/{facts[\"descriptor\"]}', 'r+b')",
    ),
    attempt(
        "read another tenant's memory",
        "result = open(f'/proc/{facts[\"neighbor_pid\"]}/mem', 'rb')",
    ),
    attempt(
        "read another tenant's environment",
        "result = open(f'/proc/{facts[\"neighbor_pid\"]}/environ', 'rb').read()",
    ),
    attempt(
        "read another tenant's root",
        "result = os.listdir(f'/proc/{facts[\"neighbor_pid\"]}/root/tmp')",
    ),
    attempt(
        "find another tenant's secret in its own memory",
        "import gc\n"
        "result = any('neighbor-only' in repr(o)[:500] for o in gc.get_objects() if isinstance(o, dict))",
        got("False"),
    ),
    attempt("open shared memory", "result = open('/dev/shm/' + facts['shared_memory'], 'r+b')"),
    attempt(
        "open shared memory by its interface",
        "from multiprocessing import shared_memory as s; result = s.SharedMemory(facts['shared_memory'])",
    ),
    attempt(
        "attach shared memory by its key", "result = call('shmget', facts['shared_key'], 0, 0)"
    ),
    attempt(
        "write on another descriptor",
        "result = [d for d in range(64) if d > 2 and d != facts['descriptor'] and _is_open(d)]",
        got(r"\[\]"),
    ),
    attempt(
        "hand its stream to others",
        "own = socket.socket(fileno=facts['descriptor'])\n"
        "own.setblocking(True)\n"
        # it goes nowhere: nobody takes descriptors from an isolate
        "result = socket.send_fds(own, [], [0])",
        Expected(answer=r"GOT 0|OSError: .*"),
    ),
    attempt(
        "lock what others read",
        "import fcntl; fcntl.lockf(open(os.__file__), fcntl.LOCK_EX)",
        Expected(answer=r"OSError: \[Errno 9\] .*|PermissionError: .*"),
    ),
    attempt("meet others by a pipe with a name", "result = os.mkfifo('/tmp/pipe')"),
    attempt(
        "see the names of others' files",
        "result = os.path.exists(facts['unix_path'])",
        got("False"),
        # the level's known weakness: Landlock does not hide names
        no_namespace=got("True"),
    ),
]
