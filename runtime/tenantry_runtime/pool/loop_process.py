"""The step loop's process: `… -m tenantry_runtime.pool.loop_process FD PAGES_FD PARENT_PID BUILD`.

FD is a connected socket on which the front first sends the engine's configuration (JSON), PAGES_FD
the memory that pages to and from other nodes are in (`shared_pages.py`); BUILD names the function
that makes a step loop of the configuration, as `module:function`. The process ends when the socket
closes, and by the kernel's hand when its parent dies.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec.structs import replace

from tenantry_runtime.errors import CapacityExceeded, ConfigurationError, ContextExceeded
from tenantry_runtime.garbage import collected_rarely
from tenantry_runtime.log_lines import log_to_stderr

from .lifeline import die_with_parent
from .loop_channel import MAX_UNSENT_BYTES, LoopChannel, PeerGone
from .loop_log import LoopLog
from .messages import Cancel, Deliver, Failed, NodeMessage, ServedElsewhere
from .page_map import AskPages, PageMaps
from .page_port import PagePort
from .shared_port import SharedMemoryPort
from .step_loop import BuildLoop, StepLoop
from .wire import Heartbeat, PackedSubmit, Ready, Unusable, decode_command, encode, unpack

if TYPE_CHECKING:
    from tenantry_runtime.engine.config import ModelSource

HEARTBEAT_INTERVAL_S = 0.5
LOG_ROOM_BYTES = MAX_UNSENT_BYTES // 4
"""With more than this unsent, records of the log wait: they must not make the loop wait for the front."""

FAILED = 1

_log = logging.getLogger(__name__)


def main(arguments: list[str]) -> int:
    fd, pages_fd, parent_pid, build = arguments
    die_with_parent(int(parent_pid))
    # the terminal's Ctrl-C reaches the whole group; the front decides when this process ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log_to_stderr(os.environ)
    log = LoopLog()
    logging.getLogger().addHandler(log)

    channel = LoopChannel(socket.socket(fileno=int(fd)))
    try:
        port = SharedMemoryPort(int(pages_fd), lambda report: channel.post(encode(report)))
        return _serve(channel, port, log, _imported(build))
    except PeerGone:
        return 0
    except Exception:
        # the outermost place of the process: what ends it is told to whoever reads the node's log
        _log.exception("the step loop failed")
        _tell_last(log, channel)
        return FAILED
    finally:
        channel.close()


def build_engine(config: bytes, port: PagePort) -> StepLoop:
    """Make the engine's own step loop."""
    # its threads must not wait by spinning: they would take the cores of those that compute
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # torch is loaded here and nowhere else in this package
    from tenantry_runtime.engine.build import build_loop
    from tenantry_runtime.engine.config import NodeConfig

    try:
        engine_config = msgspec.json.decode(config, type=NodeConfig)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"the engine's configuration: {error}") from error
    models = tuple(with_digests(with_vocab_limit(source)) for source in engine_config.models)
    return build_loop(replace(engine_config, models=models), port=port)


def with_vocab_limit(source: ModelSource) -> ModelSource:
    """Keep the engine, which knows no text, from sampling ids that have none."""
    from tenantry_runtime.text import load_text

    if source.vocab_limit is not None:
        return source
    return replace(source, vocab_limit=load_text(Path(source.directory)).vocab_size)


def with_digests(source: ModelSource) -> ModelSource:
    """Name what turns text into token ids, so that the members of a pairing can be compared."""
    from tenantry_runtime.text import template_digest, tokenizer_digest

    directory = Path(source.directory)
    return replace(
        source,
        tokenizer_digest=tokenizer_digest(directory),
        template_digest=template_digest(directory),
    )


def turn_forever(
    loop: StepLoop, port: SharedMemoryPort, channel: LoopChannel, log: LoopLog
) -> None:
    """Turn the loop until the front is gone, which raises `PeerGone`."""
    last_beat_s = -HEARTBEAT_INTERVAL_S
    was_idle = False

    def tell_ahead(message: NodeMessage) -> None:
        channel.post(encode(message))
        channel.push()

    while True:
        for message in channel.exchange(HEARTBEAT_INTERVAL_S if loop.is_idle else 0):
            _apply(loop, port, channel, message)

        for report in loop.turn(tell_ahead):
            channel.post(encode(report))

        # at once when work begins or ends, so that statistics show neither late
        now_s = time.monotonic()
        is_idle = loop.is_idle
        if now_s - last_beat_s >= HEARTBEAT_INTERVAL_S or is_idle != was_idle:
            channel.post(encode(_heartbeat(loop)))
            last_beat_s = now_s
        was_idle = is_idle
        _tell(log, channel)

        while channel.is_congested:
            channel.exchange(None)


def _serve(channel: LoopChannel, port: SharedMemoryPort, log: LoopLog, build: BuildLoop) -> int:
    received: list[bytes] = []
    while not received:
        received = channel.exchange(None)

    started_s = time.monotonic()
    try:
        loop = build(received[0], port)
    except ConfigurationError as error:
        return _refuse(str(error), log, channel)
    except Exception as error:
        # nobody foresaw it: the log has its traceback, and whoever started the node is told what it was
        _log.exception("the step loop could not be made")
        problem = f"the step loop could not be made: {type(error).__name__}: {error}"
        return _refuse(problem, log, channel)

    members = loop.describe()
    _log.info(
        "serving %s after %.2f s",
        ", ".join(f"{member.model} ({member.phase})" for member in members),
        time.monotonic() - started_s,
    )
    channel.post(encode(_heartbeat(loop)))
    channel.post(encode(Ready(members=members)))
    channel.push()
    try:
        for message in received[1:]:
            _apply(loop, port, channel, message)
        with collected_rarely():
            turn_forever(loop, port, channel, log)
    finally:
        loop.close()
    return 0


def _refuse(problem: str, log: LoopLog, channel: LoopChannel) -> int:
    """Say why there will be no loop."""
    _tell_last(log, channel)
    channel.post(encode(Unusable(problem=problem)))
    channel.flush()
    return FAILED


def _apply(loop: StepLoop, port: SharedMemoryPort, channel: LoopChannel, message: bytes) -> None:
    match decode_command(message):
        case Cancel(request_id=request_id):
            loop.cancel(request_id)
        case Deliver() as deliver:
            loop.deliver(deliver)
        case ServedElsewhere() as served:
            loop.served_elsewhere(served)
        case AskPages():
            channel.post(encode(PageMaps(pools=loop.page_maps())))
        case PackedSubmit() as packed:
            try:
                loop.submit(unpack(packed))
            except (CapacityExceeded, ContextExceeded) as error:
                reason = "capacity" if isinstance(error, CapacityExceeded) else "context"
                failed = Failed(request_id=packed.request_id, reason=reason, message=str(error))
                channel.post(encode(failed))
        case command:
            port.accept(command)


def _tell(log: LoopLog, channel: LoopChannel) -> None:
    """Hand on what the log holds, as far as there is room."""
    while channel.num_unsent_bytes < LOG_ROOM_BYTES and (logged := log.next()) is not None:
        channel.post(encode(logged))


def _tell_last(log: LoopLog, channel: LoopChannel) -> None:
    """Send all that is posted and logged, unless nobody is there any more."""
    with suppress(PeerGone):
        while (logged := log.next()) is not None:
            channel.post(encode(logged))
        channel.flush()


def _heartbeat(loop: StepLoop) -> Heartbeat:
    return Heartbeat(statistics=replace(loop.statistics(), loop_turn_ns=time.time_ns()))


def _imported(name: str) -> BuildLoop:
    module, _, function = name.partition(":")
    return cast(BuildLoop, getattr(importlib.import_module(module), function))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
