"""The template process: prepares what every isolate has, and becomes one by each fork.

Standard library only. It never sees a secret, and runs nothing of a tenant's: of a set of
dependencies it knows the folder.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

from . import linux
from .confine import Confinement
from .jail import build_root, enter_namespaces
from .wire import (
    GO,
    MAX_MESSAGE_BYTES,
    READY,
    SpawnOrder,
    TemplateOrder,
    decode_spawn_order,
    decode_template_order,
    encode_object,
)

_NUM_DESCRIPTORS = 2
# of a thread that a worker starts: what it maps counts as its memory
_THREAD_STACK_BYTES = 1 << 20
_FAILED = 70


def main(control_descriptor: str) -> NoReturn:
    """Serve orders until the runtime closes its end."""
    control = socket.socket(fileno=int(control_descriptor))
    try:
        order = decode_template_order(control.recv(MAX_MESSAGE_BYTES))
        template = Template(control, order)
        control.send(encode_object({"ready": {"pid": os.getpid()}}))
        template.serve()
    except BaseException as error:
        _tell(control, {"failed": f"{type(error).__name__}: {error}"})
        os._exit(_FAILED)
    os._exit(0)


class Template:
    """One process, in its namespaces and root, with everything imported that isolates share."""

    def __init__(self, control: socket.socket, order: TemplateOrder) -> None:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        linux.use_one_arena()
        if order.namespaces:
            enter_namespaces(order)
        self._control = control
        self._isolates: dict[int, int] = {}
        self._threads = os.open("/proc/self/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._sizes = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._pid_namespace: int | None = None
        if order.namespaces:
            self._pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            build_root(order)
        linux.drop_bounding_set()
        _point_at_nothing()
        self._confinement = Confinement(order)
        self._guest = _preload(order)
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        threading.stack_size(_THREAD_STACK_BYTES)
        gc.collect()
        gc.freeze()
        self._check_threads()

    def serve(self) -> None:
        """Answer orders, and tell of isolates that have ended."""
        ended_read, ended_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, _do_nothing)
        signal.set_wakeup_fd(ended_write, warn_on_full_buffer=False)
        waiting = select.poll()
        waiting.register(self._control, select.POLLIN)
        waiting.register(ended_read, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in waiting.poll()}
            if ended_read in ready:
                os.read(ended_read, 4096)
                self._reap()
            if self._control.fileno() in ready and not self._take_order():
                return

    def _take_order(self) -> bool:
        packet, descriptors, _, _ = socket.recv_fds(
            self._control, MAX_MESSAGE_BYTES, _NUM_DESCRIPTORS
        )
        if not packet:
            return False
        order = decode_spawn_order(packet)
        try:
            isolate = self._spawn(order, *descriptors)
        except OSError as error:
            self._say({"failed": str(error), "id": order.id})
        else:
            self._isolates[isolate] = order.id
            handle = os.pidfd_open(isolate)
            self._say({"spawned": order.id}, handle)
            os.close(handle)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _spawn(self, order: SpawnOrder, stream: int, status: int) -> int:
        self._check_threads()
        if self._pid_namespace is not None:
            linux.unshare(linux.CLONE_NEWPID)
        own_pid = os.getpid()
        try:
            isolate = os.fork()
            if not isolate:
                self._become(order, stream, status, own_pid)
        finally:
            if self._pid_namespace is not None:
                linux.setns(self._pid_namespace, linux.CLONE_NEWPID)
        return isolate

    def _become(self, order: SpawnOrder, stream: int, status: int, template_pid: int) -> NoReturn:
        told = socket.socket(fileno=status)
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            sizes = self._with_address_space(order)
            self._confinement.put_on(sizes, template_pid, (stream, status))
            connection = socket.socket(fileno=_lowest(stream))
            _check_library()
            told.send(READY)
            # while the runtime makes ready its own end
            serve = self._guest.prepare(connection)
            if told.recv(len(GO)) != GO:
                os._exit(0)
            told.close()
        except BaseException as error:
            _tell(told, {"failed": f"{type(error).__name__}: {error}"})
            os._exit(_FAILED)
        try:
            serve()
        finally:
            os._exit(1)

    def _check_threads(self) -> None:
        """A thread that holds a lock does not exist in a fork, and its lock stays held there."""
        num_threads = len(os.listdir(self._threads))
        assert num_threads == 1, f"the template has {num_threads} threads"

    def _with_address_space(self, order: SpawnOrder) -> SpawnOrder:
        num_pages = int(os.pread(self._sizes, 256, 0).split()[0])
        own = num_pages * resource.getpagesize()
        return order.with_address_bytes(order.address_bytes + own)

    def _reap(self) -> None:
        while self._isolates:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            code = os.waitstatus_to_exitcode(status)
            ended = {
                "exited": self._isolates.pop(process),
                "signal": -code if code < 0 else None,
                "code": code if code >= 0 else None,
            }
            self._say(ended)

    def _say(self, message: dict[str, Any], *descriptors: int) -> None:
        socket.send_fds(self._control, [encode_object(message)], descriptors)


# Any: the guest is another module, by its name
def _preload(order: TemplateOrder) -> Any:
    # what Python itself put there
    os.environ.clear()
    # libraries of linear algebra set memory aside for each thread, more than an isolate has
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path[:] = order.path
    sys.path_importer_cache.clear()
    guest = importlib.import_module(order.guest)
    guest.preload()
    return guest


def _point_at_nothing() -> None:
    nothing = os.open("/dev/null", os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    if nothing > 2:
        os.close(nothing)


def _check_library() -> None:
    """Fail now rather than at the first import of a worker's."""
    try:
        os.close(os.open(os.__file__, os.O_RDONLY))
    except OSError as error:
        raise PermissionError(f"isolates cannot read the interpreter's library: {error}") from error


def _lowest(descriptor: int) -> int:
    """Give a descriptor the lowest free number: the limit of files counts by numbers."""
    lowest = os.dup(descriptor)
    if lowest < descriptor:
        os.close(descriptor)
        return lowest
    os.close(lowest)
    return descriptor


def _do_nothing(*_: object) -> None:
    """Python notices a signal only if it has a handler."""


def _tell(socket_: socket.socket, message: dict[str, Any]) -> None:
    try:
        socket_.send(encode_object(message))
    except OSError:
        # whoever would hear of it has gone
        return
