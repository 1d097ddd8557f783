"""Privileges, calls in ways that no filter expects, and secrets that might have been inherited."""

from __future__ import annotations

from .attempt import DENIED, KILLED, SIGSYS, Expected, attempt, got

# getpid by the calls of 32-bit programs: mov eax, 20; int 0x80; ret
_OLD_CALL = "b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3'"
_RUN_MACHINE_CODE = f"""
page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
page.write({_OLD_CALL})
def run():
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_long)(address)()
"""

# how `resource` reports the kernel's refusal
_REFUSED_BY_PYTHON = Expected(answer="ValueError: not allowed to raise maximum limit")

# as a user that others are, too, an isolate has one thread only
_KILLED_WHOLE = Expected(answer="RuntimeError: can't start new thread", signals=(SIGSYS,))

PRIVILEGES = [
    attempt("become root", "result = os.setuid(0)"),
    attempt("become root's group", "result = os.setgid(0)"),
    attempt("join groups", "result = os.setgroups([0])"),
    attempt("become another tenant", "result = os.setuid(facts['neighbor_uid'])"),
    attempt("use another user's files", "result = call('setfsuid', 0)"),
    attempt("have no user of root's", "result = os.getuid() == 0", got("False")),
    attempt("let others look into it", "result = call('prctl', 4, 1, 0, 0, 0)"),
    attempt("keep capabilities", "result = call('prctl', 47, 2, 21, 0, 0)"),
    attempt("outlive the template", "result = call('prctl', 1, 0, 0, 0, 0)"),
    attempt("adopt processes", "result = call('prctl', 36, 1, 0, 0, 0)"),
    attempt(
        "raise its limit of files",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))",
        _REFUSED_BY_PYTHON,
    ),
    attempt(
        "raise its limit of memory",
        "import resource; resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))",
        _REFUSED_BY_PYTHON,
    ),
]

CALLS = [
    attempt(
        "call by x32's numbers",
        "ctypes.CDLL(None).syscall(0x40000000 + 39)",
        KILLED,
        machine="x86_64",
    ),
    attempt("call as a 32-bit program", f"{_RUN_MACHINE_CODE}run()", KILLED, machine="x86_64"),
    attempt(
        # a filter that kills the thread only would leave the others running
        "call as a 32-bit program in a thread",
        f"{_RUN_MACHINE_CODE}thread = threading.Thread(target=run); thread.start(); thread.join(); time.sleep(9)",
        _KILLED_WHOLE,
        machine="x86_64",
    ),
    attempt("call what does not exist", "result = ctypes.CDLL(None).syscall(100000)", got("-1")),
]

INHERITED = [
    attempt(
        "find the runtime's secret in its environment",
        "result = dict(os.environ)",
        got(r"\{'OMP_NUM_THREADS': '1'\}"),
    ),
    attempt(
        "find the runtime's secret on its stack",
        "libc = ctypes.CDLL(None); end = ctypes.c_void_p.in_dll(libc, '__libc_stack_end').value\n"
        "found = b''\n"
        # a write of what is not mapped fails, where reading it would be the end
        "read_end, write_end = os.pipe()\n"
        "for page in range(end & ~4095, (end & ~4095) + (1 << 20), 4096):\n"
        "    try: call('write', write_end, ctypes.c_void_p(page), 4096)\n"
        "    except OSError: break\n"
        "    found += os.read(read_end, 4096)\n"
        "result = b'_SECRET=' in found, len(found) > 0",
        got(r"\(False, True\)"),
    ),
    attempt(
        "find the runtime's secret among Python's objects",
        "import gc\n"
        "texts = [o for o in gc.get_objects() if isinstance(o, dict)]\n"
        "result = any('escape-suite' in str(v)[:500] for d in texts for v in list(d.values()) if isinstance(v, (str, bytes)))",
        got("False"),
    ),
    attempt(
        "see the runtime's arguments",
        "result = any('pytest' in a for a in sys.orig_argv)",
        got("False"),
    ),
    attempt(
        "see what the template had open",
        "result = [os.fstat(d).st_rdev for d in range(64) if d != facts['descriptor'] and _is_open(d)]",
        Expected(answer=r"GOT \[(\d+), \1, \1\]"),
    ),
    attempt(
        "find code of a tenant in the template",
        "result = [m for m in sys.modules if m.startswith(('worker', 'entry'))]",
        got(r"\[\]"),
    ),
    attempt(
        "share its randomness with another tenant",
        "import random, uuid; result = random.random() == facts['neighbor_random']",
        got("False"),
    ),
    attempt("wait for a child of the template", "result = os.waitpid(-1, os.WNOHANG)", DENIED),
]
