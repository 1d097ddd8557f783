"""The kernel's interfaces: what widens its surface, and what would change the machine."""

from __future__ import annotations

from .attempt import KILLED, attempt

KERNEL = [
    attempt("load a program into the kernel", "call('bpf', 0, bytes(128), 128)", KILLED),
    attempt("load a module", "call('init_module', bytes(16), 16, b'')", KILLED),
    attempt("load a module from a file", "call('finit_module', 3, b'', 0)", KILLED),
    attempt("boot another kernel", "call('kexec_load', 0, 0, None, 0)", KILLED),
    attempt("count events", "call('perf_event_open', bytes(128), 0, -1, -1, 0)", KILLED),
    attempt("handle page faults", "call('userfaultfd', 0)", KILLED),
    attempt("submit calls by a ring", "call('io_uring_setup', 8, bytes(120))", KILLED),
    attempt("use the kernel's keys", "call('keyctl', 0, -3, 0, 0, 0)", KILLED),
    attempt("keep a key in the kernel", "call('add_key', b'user', b'x', b'y', 1, -3)", KILLED),
    attempt("open a file by its handle", "call('open_by_handle_at', 3, bytes(16), 0)", KILLED),
    attempt("enter a namespace", "call('setns', 3, 0)", KILLED),
    attempt("change the root", "call('pivot_root', b'/tmp', b'/tmp')", KILLED),
    attempt("open the processor's ports", "call('iopl', 3)", KILLED, machine="x86_64"),
    attempt("change segments", "call('modify_ldt', 1, bytes(16), 16)", KILLED, machine="x86_64"),
    attempt("make a user namespace", "result = call('unshare', 0x10000000)"),
    attempt("make a mount namespace", "result = call('unshare', 0x20000)"),
    attempt("mount a filesystem", "result = call('mount', b'x', b'/tmp', b'tmpfs', 0, None)"),
    attempt("mount by the new calls", "result = call('fsopen', b'tmpfs', 0)"),
    attempt("take a tree of mounts", "result = call('open_tree', -100, b'/', 1)"),
    attempt("move a mount", "result = call('move_mount', 3, b'', -100, b'/tmp', 4)"),
    attempt(
        "make a mount writable", "result = call('mount_setattr', -100, b'/', 0, bytes(32), 32)"
    ),
    attempt("unmount its files", "result = call('umount2', b'/tmp', 2)"),
    attempt("change its root", "os.chroot('/tmp')"),
    attempt("make a file without a name", "result = os.memfd_create('x')"),
    attempt("keep memory secret", "result = call('memfd_secret', 0)"),
    attempt("share memory by a key", "result = call('shmget', 0x7465, 4096, 0o1666)"),
    attempt("make a queue", "result = call('mq_open', b'q', 0o102, 0o666, None)"),
    attempt("watch the filesystem", "result = call('fanotify_init', 0, 0)"),
    attempt(
        "name a file for later",
        "result = call('name_to_handle_at', -100, b'/', bytes(136), None, 0)",
    ),
    attempt("filter its own calls", "result = call('seccomp', 1, 0, bytes(16))"),
    attempt("make rules of its own", "result = call('landlock_create_ruleset', None, 0, 1)"),
    attempt("make a timer that signals", "result = call('timer_create', 0, None, bytes(8))"),
    attempt("map pages into a pipe", "result = call('vmsplice', 1, None, 0, 0)"),
    attempt("read the kernel's messages", "result = call('syslog', 3, bytes(64), 64)"),
    attempt("set the clock", "result = call('settimeofday', bytes(16), None)"),
    attempt("name the machine", "result = socket.sethostname('mine')"),
    attempt("restart the machine", "result = call('reboot', 0xfee1dead, 672274793, 0x1234567)"),
    attempt("swap to a file", "result = call('swapon', b'/tmp/x', 0)"),
    attempt("account processes", "result = call('acct', None)"),
    attempt("set quotas", "result = call('quotactl', 0x800002, b'/dev/vda', 0, None)"),
    attempt("turn randomization off", "result = call('personality', 0x40000)"),
]
