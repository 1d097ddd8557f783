"""Resources: to use up what all have in common. The neighbor answers meanwhile."""

from __future__ import annotations

from .attempt import SIGKILL, SIGSEGV, STOPPED, Expected, attempt, got

_SIGXFSZ, _SIGABRT, _SIGXCPU = 25, 6, 24
_OUT_OF_MEMORY = Expected(
    answer=r"(MemoryError|OSError: \[Errno 12\]|RuntimeError: can't).*", signals=(SIGKILL,)
)
_NO_SPACE = Expected(answer=r"(OSError: \[Errno (27|28)\]|PermissionError).*", signals=(_SIGXFSZ,))

RESOURCES = [
    attempt(
        "take all memory", "kept = []\nwhile True: kept.append(b'x' * (1 << 20))", _OUT_OF_MEMORY
    ),
    attempt(
        "take all memory and go on",
        "kept = []\n"
        "try:\n"
        "    while True: kept.append(bytearray(1 << 20))\n"
        "except MemoryError:\n"
        "    result = len(kept); kept.clear()",
        Expected(answer=r"GOT (9\d|1[012]\d)"),
    ),
    attempt(
        "take memory that is shared",
        "kept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 1 << 20)); kept[-1].write(b'x' * (1 << 20))",
    ),
    attempt(
        "take memory as a stack",
        "result = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100)",
    ),
    attempt(
        "take memory in large pages",
        "result = mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)",
    ),
    attempt(
        # what is read-only is no data to RLIMIT_DATA: the address space's limit holds it
        "take memory and make it read-only",
        "libc = ctypes.CDLL(None, use_errno=True); kept = []\n"
        "while True:\n"
        "    kept.append(mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))\n"
        "    kept[-1].write(b'x' * (8 << 20))\n"
        "    assert len(kept) * 8 < 700, 'more than the limit'\n"
        "    libc.mprotect(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(kept[-1]))), ctypes.c_size_t(8 << 20), 1)",
        Expected(answer=r"OSError: \[Errno 12\] .*|MemoryError.*"),
    ),
    attempt(
        "start threads",
        "started = 0\n"
        "try:\n"
        "    while started < 500:\n"
        "        threading.Thread(target=time.sleep, args=(5,), daemon=True).start(); started += 1\n"
        "except RuntimeError:\n"
        "    result = started",
        Expected(answer=r"GOT (\d|1[0-5])"),
    ),
    attempt("open files", "kept = []\nwhile True: kept.append(os.open('/dev/null', 0))"),
    attempt("make pipes", "kept = []\nwhile True: kept.append(os.pipe())"),
    attempt(
        "fill pipes",
        "kept = []\n"
        "while True:\n"
        "    kept.append(os.pipe()); os.set_blocking(kept[-1][1], False)\n"
        "    kept.append(os.write(kept[-1][1], b'x' * (1 << 20)))",
    ),
    attempt(
        "fill the disk",
        "file = open('/tmp/large', 'wb')\nwhile True: file.write(b'x' * (1 << 20)); file.flush()",
        _NO_SPACE,
    ),
    attempt(
        "fill the disk with many files",
        "for number in range(10**6):\n"
        "    with open(f'/tmp/{number}', 'wb') as file: file.write(b'x' * (1 << 20))",
        _NO_SPACE,
    ),
    attempt(
        "use all files up",
        "for number in range(10**5): open(f'/tmp/{number}', 'x').close()",
        _NO_SPACE,
    ),
    attempt(
        "reserve a large file",
        "file = open('/tmp/sparse', 'wb'); file.truncate(1 << 40)",
        _NO_SPACE,
    ),
    attempt("never end", "while True: pass", STOPPED),
    attempt("never end in C", "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')", STOPPED),
    attempt(
        "never end, with all signals blocked",
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
        STOPPED,
    ),
    attempt(
        "never end in threads",
        "def spin():\n    while True: pass\n"
        "for _ in range(4):\n    try: threading.Thread(target=spin).start()\n    except RuntimeError: pass\n"
        "spin()",
        STOPPED,
    ),
    attempt(
        "compute a large number",
        "result = 9 ** 9 ** 9",
        Expected(answer="MemoryError.*", is_stopped=True),
    ),
    attempt(
        "stop itself",
        "os.kill(os.getpid(), signal.SIGSTOP); result = 'went on'",
        # the first process of a PID namespace does not stop by a signal of its own
        Expected(answer="GOT 'went on'", is_stopped=True),
    ),
    attempt(
        "recurse",
        "sys.setrecursionlimit(10**8)\ndef deeper(): return deeper()\ndeeper()",
        Expected(answer="(RecursionError|MemoryError).*", signals=(SIGSEGV,), is_stopped=True),
    ),
    attempt(
        "recurse in C",
        "sys.setrecursionlimit(10**8)\nnested = []\nfor _ in range(10**6): nested = [nested]\nrepr(nested)",
        Expected(answer="(RecursionError|MemoryError).*", signals=(SIGSEGV,)),
    ),
    attempt("crash", "ctypes.string_at(0)", Expected(signals=(SIGSEGV,))),
    attempt("abort", "os.abort()", Expected(signals=(_SIGABRT, SIGSEGV, 4, 5))),
    attempt(
        "send alarms",
        "signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6); time.sleep(9)",
        Expected(signals=(14,), is_stopped=True),
    ),
    attempt(
        "ask for more memory than there is", "result = len(bytearray(1 << 45))", _OUT_OF_MEMORY
    ),
    attempt(
        "map a large range",
        "result = mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)",
        Expected(answer=r"OSError: \[Errno 12\] .*"),
    ),
    attempt(
        "unpack a bomb",
        "import zlib; bomb = zlib.compress(bytes(1 << 24))\nkept = [zlib.decompress(bomb) for _ in range(64)]",
        _OUT_OF_MEMORY,
    ),
    attempt("do nothing", "result = 'nothing'", got("'nothing'")),
]
