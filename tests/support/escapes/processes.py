"""Processes: to make some, and to reach those of others."""

from __future__ import annotations

from .attempt import DENIED, KILLED, Expected, attempt, got

PROCESSES = [
    attempt("fork", "result = os.fork()"),
    attempt("start a program", "import subprocess; result = subprocess.run(['/bin/true'])"),
    attempt("spawn a program", "result = os.posix_spawn('/bin/true', ['true'], {})"),
    attempt("become a program", "os.execv('/bin/sh', ['sh', '-c', 'true'])"),
    attempt("become an open program", "call('execveat', 3, b'', None, None, 0x1000)"),
    attempt("clone itself", "result = call('clone', signal.SIGCHLD, 0, 0, 0, 0)"),
    attempt(
        "clone itself with a namespace", "call('clone', 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)"
    ),
    attempt(
        "clone by the call whose flags no filter sees",
        "result = call('clone3', bytes(88), 88)",
        Expected(answer=r"OSError: \[Errno 38\] .*"),
    ),
    attempt("signal the runtime", "result = os.kill(facts['host_pid'], 0)"),
    attempt("signal another tenant", "result = os.kill(facts['neighbor_pid'], 9)"),
    attempt("signal everybody", "result = os.kill(-1, 9)"),
    attempt("signal its group", "result = os.kill(0, 9)"),
    attempt("signal the template", "result = os.kill(os.getppid(), 0)"),
    attempt(
        "signal a thread of the runtime",
        "result = call('tgkill', facts['host_pid'], facts['host_pid'], 0)",
    ),
    attempt("signal a thread by its number", "result = call('tkill', facts['host_pid'], 0)"),
    attempt(
        "queue a signal for the runtime",
        "result = call('rt_sigqueueinfo', facts['host_pid'], 10, bytes(128))",
    ),
    attempt(
        "have the kernel signal another tenant",
        "import fcntl; result = fcntl.fcntl(facts['descriptor'], fcntl.F_SETOWN, facts['neighbor_pid'])",
    ),
    attempt("signal itself", "result = os.kill(os.getpid(), 0)", got("None")),
    attempt("get a handle on the runtime", "result = call('pidfd_open', facts['host_pid'], 0)"),
    attempt("get a descriptor of the runtime", "result = call('pidfd_getfd', 3, 0, 0)"),
    attempt("signal by a handle", "result = call('pidfd_send_signal', 3, 9, None, 0)"),
    attempt("trace another tenant", "call('ptrace', 16, facts['neighbor_pid'], 0, 0)", KILLED),
    attempt("trace itself", "call('ptrace', 0, 0, 0, 0)", KILLED),
    attempt(
        "read another process's memory",
        "call('process_vm_readv', facts['neighbor_pid'], None, 0, None, 0, 0)",
        KILLED,
    ),
    attempt(
        "write another process's memory",
        "call('process_vm_writev', facts['neighbor_pid'], None, 0, None, 0, 0)",
        KILLED,
    ),
    attempt(
        "advise another process's memory", "result = call('process_madvise', 3, None, 0, 4, 0)"
    ),
    attempt("compare with another process", "result = call('kcmp', 1, facts['host_pid'], 0, 0, 0)"),
    attempt("list processes", "result = os.listdir('/proc')"),
    attempt("read its own environment", "result = open('/proc/self/environ', 'rb').read()"),
    attempt("read its own memory map", "result = open('/proc/self/maps').read()"),
    attempt("write its own memory", "result = open('/proc/self/mem', 'r+b')"),
    attempt(
        "read the runtime's environment",
        "result = open(f'/proc/{facts[\"host_pid\"]}/environ', 'rb').read()",
    ),
    attempt(
        "see the runtime's root",
        "result = os.listdir(f'/proc/{facts[\"host_pid\"]}/root/')",
    ),
    attempt("slow another tenant", "result = call('setpriority', 0, facts['neighbor_pid'], 19)"),
    attempt("hurry itself", "result = os.nice(-5)"),
    attempt("run in real time", "result = call('sched_setscheduler', 0, 1, bytes([1, 0, 0, 0]))"),
    attempt("choose its processor", "result = os.sched_setaffinity(0, {0})"),
    attempt(
        "ask for the runtime's processors",
        "result = os.sched_getaffinity(facts['host_pid'])",
        DENIED,
    ),
    attempt(
        "read the runtime's limits",
        "import resource; result = resource.prlimit(facts['host_pid'], resource.RLIMIT_AS)",
    ),
    attempt("find the runtime's session", "result = os.getsid(facts['host_pid'])"),
]
