"""Files: what is the machine's, the runtime's or the interpreter's, to read and to change."""

from __future__ import annotations

from .attempt import DENIED, Expected, attempt, got

_GONE = Expected(answer="ModuleNotFoundError: .*")

FILES = [
    attempt("read the machine's users", "result = open('/etc/passwd').read()"),
    attempt("read the machine's passwords", "result = open('/etc/shadow').read()"),
    attempt("read a file that everybody may read", "result = open(facts['secret_file']).read()"),
    attempt("list the root", "result = os.listdir('/')"),
    attempt("list what the root was", "result = os.listdir('/old')"),
    attempt("list devices", "result = os.listdir('/dev')"),
    attempt("read the system's settings", "result = open('/sys/kernel/mm/lru_gen/enabled').read()"),
    attempt("open a disk", "result = os.open('/dev/vda', os.O_RDONLY)"),
    attempt("open the kernel's log", "result = open('/dev/kmsg')"),
    attempt("open the terminal", "result = open('/dev/tty')"),
    attempt("make a device", "result = os.mknod('/tmp/disk', 0o60600, os.makedev(254, 0))"),
    attempt("write into the root", "result = open('/mine', 'w')"),
    attempt("make an unnamed file in the root", "result = os.open('/', os.O_TMPFILE | os.O_RDWR)"),
    attempt("write into the standard library", "result = open(os.__file__, 'a')"),
    attempt(
        "write into the guest's code", "result = open(sys.modules['tiny_guest'].__file__, 'a')"
    ),
    attempt("empty a file of the runtime's", "result = os.truncate(facts['own_file'], 0)"),
    attempt(
        "empty a file of the runtime's by opening it",
        "result = os.open(facts['own_file'], os.O_RDONLY | os.O_TRUNC)",
    ),
    attempt("open a file of the runtime's up", "result = os.chmod(facts['own_file'], 0o666)"),
    attempt("date a file of the runtime's", "result = os.utime(facts['own_file'], (1, 1))"),
    attempt("remove a file of the runtime's", "result = os.unlink(facts['own_file'])"),
    attempt("move a file of the runtime's", "result = os.rename(facts['own_file'], '/tmp/mine')"),
    attempt("give a file of the runtime's another name", "os.link(facts['own_file'], '/tmp/mine')"),
    attempt(
        "follow a link to a file of the runtime's",
        "os.symlink(facts['secret_file'], '/tmp/link'); result = open('/tmp/link').read()",
    ),
    attempt("climb out of its files", "result = open('/tmp/../..' + facts['secret_file']).read()"),
    attempt("list packages of the runtime", "result = os.listdir(facts['packages'])"),
    attempt(
        "list packages of the interpreter",
        "result = os.listdir(os.path.dirname(os.__file__) + '/site-packages')",
        Expected(answer=r"GOT \[\]|PermissionError: .*|FileNotFoundError: .*"),
    ),
    attempt("import the runtime", "import tenantry_runtime.errors", _GONE),
    attempt("import a package of the runtime", "import anyio", _GONE),
    attempt("ask for the disk's size", "result = os.statvfs('/')"),
    attempt(
        "touch the runtime's null device",
        "os.fchmod(0, 0o600); result = os.fstat(0).st_mode",
    ),
    attempt("lock a file that others read", "import fcntl; fcntl.flock(open(os.__file__), 2)"),
    attempt("watch files", "result = call('inotify_init1', 0)"),
    attempt(
        "see which files there are",
        "result = os.stat('/etc/passwd').st_size > 0",
        DENIED,
        # the level's known weakness: Landlock does not hide names
        no_namespace=got("True"),
    ),
]
