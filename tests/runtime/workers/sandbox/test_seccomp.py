"""The filter of system calls, run as the kernel would, for both architectures.

Numbers come from Linux's headers, by way of other programs' tables: x86_64's and the generic one.
"""

from __future__ import annotations

import errno
import platform

import pytest

from support.bpf import AARCH64, ALLOW, ARM, I386, KILL_PROCESS, X86_64, decide, errno as answer
from tenantry_runtime.workers.sandbox.confine import ANY_PID, filter_for
from tenantry_runtime.workers.sandbox.seccomp import build_filter

ARCHITECTURES = {"x86_64": X86_64, "aarch64": AARCH64}
OTHERS = {"x86_64": (I386, AARCH64), "aarch64": (ARM, X86_64)}
DENIED = answer(errno.EPERM)

OWN = 4242
THREAD = 0x003D0F00
"""What libc starts threads with."""

# (x86_64, aarch64); None: the architecture has no such call
CALLS: dict[str, tuple[int, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "openat": (257, 56),
    "mmap": (9, 222),
    "futex": (202, 98),
    "epoll_pwait": (281, 22),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "clone": (56, 220),
    "clone3": (435, 435),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "getsockopt": (55, 209),
    "setsockopt": (54, 208),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "ptrace": (101, 117),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "setns": (308, 268),
    "mount": (165, 40),
    "unshare": (272, 97),
    "memfd_create": (319, 279),
    "fchmodat": (268, 53),
    "unlinkat": (263, 35),
    "pidfd_open": (434, 434),
    "rt_sigqueueinfo": (129, 138),
    "sched_getaffinity": (204, 123),
}


class Machine:
    """A filter, and calls by their names."""

    def __init__(self, name: str, *, has_private_files: bool = False, has_threads: bool = True):
        self.name = name
        self.program = build_filter(
            OWN, has_private_files=has_private_files, has_threads=has_threads
        )

    def __call__(self, call: str, *arguments: int) -> int:
        number = CALLS[call][self.name != "x86_64"]
        assert number is not None
        return decide(self.program, ARCHITECTURES[self.name], number, *arguments)


@pytest.fixture(params=ARCHITECTURES)
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    architecture: str = request.param
    monkeypatch.setattr(platform, "machine", lambda: architecture)
    return architecture


@pytest.fixture
def machine(name: str) -> Machine:
    return Machine(name)


@pytest.mark.parametrize(
    "call", ["read", "write", "openat", "futex", "epoll_pwait", "exit_group", "getrandom"]
)
def test_what_python_needs_is_allowed(machine: Machine, call: str) -> None:
    assert machine(call) == ALLOW


@pytest.mark.parametrize(
    "call",
    "execve socket setsockopt mount unshare memfd_create pidfd_open rt_sigqueueinfo".split(),
)
def test_what_is_not_listed_is_refused(machine: Machine, call: str) -> None:
    assert machine(call) == DENIED


@pytest.mark.parametrize("call", ["ptrace", "bpf", "io_uring_setup", "setns"])
def test_what_no_program_calls_by_accident_kills(machine: Machine, call: str) -> None:
    assert machine(call) == KILL_PROCESS


def test_another_architecture_kills_the_process(machine: Machine) -> None:
    for other in OTHERS[machine.name]:
        assert decide(machine.program, other, 0) == KILL_PROCESS


def test_numbers_of_x32_kill_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    program = Machine("x86_64").program

    for number in (0, 39, 59, 322):
        assert decide(program, X86_64, 0x4000_0000 + number) == KILL_PROCESS


def test_fork_by_its_own_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    machine = Machine("x86_64")

    assert (machine("fork"), machine("vfork")) == (DENIED, DENIED)


def test_clone_makes_threads_only(machine: Machine) -> None:
    namespaces = (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 1 << 30)

    assert machine("clone", THREAD) == ALLOW
    assert machine("clone", 17) == DENIED
    assert machine("clone", 0x4111) == DENIED
    for namespace in namespaces:
        assert machine("clone", THREAD | namespace) == DENIED


def test_clone_makes_nothing_where_threads_cannot_be_counted(name: str) -> None:
    assert Machine(name, has_threads=False)("clone", THREAD) == DENIED


def test_libc_is_told_that_there_is_no_clone3(machine: Machine) -> None:
    assert machine("clone3") == answer(errno.ENOSYS)


def test_calls_that_are_newer_do_not_exist(machine: Machine) -> None:
    architecture = ARCHITECTURES[machine.name]
    # fchmodat2, statmount, and what no kernel has
    for number in (452, 457, 1000, 0x3FFF_FFFF):
        assert decide(machine.program, architecture, number) == answer(errno.ENOSYS)


@pytest.mark.parametrize("call", ["kill", "tkill", "tgkill"])
def test_signals_go_to_the_process_itself_only(machine: Machine, call: str) -> None:
    assert machine(call, OWN, OWN, 6) == ALLOW
    for other in (0, 1, -1, -OWN, OWN + 1):
        assert machine(call, other, OWN, 0) == DENIED


def test_memory_that_no_limit_counts_is_refused(machine: Machine) -> None:
    private, shared, anonymous, grows_down, huge = 0x02, 0x01, 0x20, 0x100, 0x40000

    def mapped(flags: int) -> int:
        return machine("mmap", 0, 4096, 3, flags, -1, 0)

    assert mapped(private | anonymous) == ALLOW
    assert mapped(private | anonymous | 0x4000 | 0x20000) == ALLOW
    assert (mapped(private), mapped(shared)) == (ALLOW, ALLOW)
    assert mapped(shared | anonymous) == DENIED
    assert mapped(0x03 | anonymous) == DENIED
    assert mapped(private | anonymous | grows_down) == DENIED
    assert mapped(private | anonymous | huge) == DENIED


def test_descriptors_get_no_owner_to_signal(machine: Machine) -> None:
    own, signal, own_ex, flags, duplicate = 8, 10, 15, 3, 1030

    assert (machine("fcntl", 3, flags), machine("fcntl", 3, duplicate)) == (ALLOW, ALLOW)
    for command in (own, signal, own_ex, 1024, 1026, 1031, 1033):
        assert machine("fcntl", 3, command, 1) == DENIED


def test_limits_are_read_and_not_set(machine: Machine) -> None:
    assert machine("prlimit64", 0, 7, 0, 0x7FFF_0000) == ALLOW
    assert machine("prlimit64", 0, 7, 0x7FFF_0000, 0) == DENIED
    # a pointer whose lower half is 0
    assert machine("prlimit64", 0, 7, 0x7FFF_0000_0000, 0) == DENIED
    assert machine("prlimit64", 1, 7, 0, 0x7FFF_0000) == DENIED


def test_threads_are_named_and_nothing_else_is_set(machine: Machine) -> None:
    assert machine("prctl", 15) == ALLOW
    for option in (1, 4, 22, 23, 24, 36, 38, 47, 53, 0x59616D61):
        assert machine("prctl", option) == DENIED


def test_a_socket_tells_its_kind_and_not_its_peer(machine: Machine) -> None:
    assert machine("getsockopt", 3, 1, 3) == ALLOW
    for option in (17, 31, 59, 77):
        assert machine("getsockopt", 3, 1, option) == DENIED
    assert machine("getsockopt", 3, 6, 3) == DENIED


def test_pairs_are_unix_sockets(machine: Machine) -> None:
    assert (machine("socketpair", 1, 1), machine("socketpair", 2, 1)) == (ALLOW, DENIED)


def test_nothing_is_sent_or_received_out_of_band(machine: Machine) -> None:
    oob, nosignal, dontwait = 0x01, 0x4000, 0x40

    for call in ("sendto", "recvfrom"):
        assert machine(call, 3, 0, 1, nosignal | dontwait) == ALLOW
        assert machine(call, 3, 0, 1, oob | nosignal) == DENIED
    assert machine("sendmsg", 3, 0, nosignal) == ALLOW
    assert machine("sendmsg", 3, 0, oob) == DENIED


def test_no_descriptor_is_received(machine: Machine) -> None:
    assert machine("recvmsg", 3, 0, 0) == DENIED


def test_devices_are_not_controlled(machine: Machine) -> None:
    assert machine("ioctl", 3, 0x5421) == ALLOW
    for request in (0x5412, 0x5401, 0x8901, 0x541C):
        assert machine("ioctl", 3, request) == DENIED


def test_the_processors_of_others_are_not_told(machine: Machine) -> None:
    assert machine("sched_getaffinity", 0) == ALLOW
    assert machine("sched_getaffinity", 1) == DENIED


@pytest.mark.parametrize("call", ["fchmodat", "unlinkat"])
def test_files_change_only_where_they_are_the_isolates_own(name: str, call: str) -> None:
    assert Machine(name)(call) == DENIED
    assert Machine(name, has_private_files=True)(call) == ALLOW


@pytest.mark.parametrize("pid", [1, 2, 4242, 0x003F_FFFF])
def test_a_filter_that_is_made_ahead_is_the_one_of_its_process(name: str, pid: int) -> None:
    def built(own_pid: int) -> bytes:
        return build_filter(own_pid, has_private_files=True, has_threads=True)

    assert filter_for(built(ANY_PID), pid) == built(pid)
