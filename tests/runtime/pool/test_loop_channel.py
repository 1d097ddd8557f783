"""The step loop's socket: no deadlock and no growth when the front is stuck."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from support.fake_loop import FakeLoop, FakeLoopConfig
from support.fake_node import a_submit
from tenantry_runtime.pool.frames import FrameBuffer, with_length
from tenantry_runtime.pool.loop_channel import MAX_UNSENT_BYTES, LoopChannel, PeerGone
from tenantry_runtime.pool.loop_log import MAX_CHARS, MAX_WAITING, LoopLog
from tenantry_runtime.pool.loop_process import LOG_ROOM_BYTES, turn_forever
from tenantry_runtime.pool.messages import NodeMessage, Step
from tenantry_runtime.pool.shared_port import SharedMemoryPort
from tenantry_runtime.pool.step_loop import Tell
from tenantry_runtime.pool.wire import decode_report, encode, pack

MAX_STEP_BYTES = 1 << 10
"""More than one step of one sequence takes."""


class ObservedChannel(LoopChannel):
    """Says when its loop waits for the front."""

    def __init__(self, peer: socket.socket) -> None:
        super().__init__(peer)
        self.is_stuck = threading.Event()

    def exchange(self, timeout_s: float | None) -> list[bytes]:
        if timeout_s is None:
            self.is_stuck.set()
        return super().exchange(timeout_s)


def test_a_loop_whose_front_does_not_read_waits_and_then_loses_nothing() -> None:
    front, peer = socket.socketpair()
    channel = ObservedChannel(peer)
    # never used: this loop pushes nothing
    port = SharedMemoryPort(0, lambda report: None)
    submit = a_submit(prompt=[0], max_tokens=200_000)

    def turn() -> None:
        with pytest.raises(PeerGone):
            turn_forever(FakeLoop(FakeLoopConfig(step_s=0)), port, channel, LoopLog())

    thread = threading.Thread(target=turn)
    with front:
        front.sendall(with_length(encode(pack(submit))))
        thread.start()
        assert channel.is_stuck.wait(timeout=30)
        assert channel.num_unsent_bytes < MAX_UNSENT_BYTES + MAX_STEP_BYTES

        buffer = FrameBuffer()
        received: list[int] = []
        while len(received) < submit.max_tokens:
            for message in buffer.feed(front.recv(1 << 20)):
                report = decode_report(message)
                if isinstance(report, Step):
                    received += report.sequences[0].token_ids
    thread.join(timeout=30)
    channel.close()

    assert received == list(range(1, 200_001))
    assert not thread.is_alive()


class Done(Exception):
    """A loop that has turned often enough."""


class TalkativeLoop(FakeLoop):
    """Says more in each turn than its front ever reads."""

    is_idle = False

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(FakeLoopConfig(step_s=0))
        self._logger = logger
        self._num_turns = 0

    def turn(self, tell_ahead: Tell | None = None) -> list[NodeMessage]:
        self._num_turns += 1
        if self._num_turns > 100:
            raise Done
        for _ in range(MAX_WAITING + 1):
            self._logger.error("x" * MAX_CHARS)
        return []


def test_a_log_that_nobody_reads_makes_no_loop_wait() -> None:
    front, peer = socket.socketpair()
    channel = LoopChannel(peer)
    log = LoopLog()
    logger = logging.Logger("tenantry.test")
    logger.addHandler(log)
    port = SharedMemoryPort(0, lambda report: None)
    with front:
        # were it to wait, nobody would let it go
        with pytest.raises(Done):
            turn_forever(TalkativeLoop(logger), port, channel, log)
        assert channel.num_unsent_bytes < LOG_ROOM_BYTES + 2 * MAX_CHARS
    channel.close()


def test_a_congested_channel_receives_nothing() -> None:
    front, peer = socket.socketpair()
    channel = LoopChannel(peer)
    with front:
        front.sendall(with_length(b"a command"))
        channel.post(bytes(2 * MAX_UNSENT_BYTES))

        assert channel.exchange(0) == []
        while channel.is_congested:
            front.recv(1 << 20)
            channel.exchange(0)
        assert channel.exchange(0) == [b"a command"]
    channel.close()


@pytest.mark.parametrize("num_unsent_bytes", [0, 10, 2 * MAX_UNSENT_BYTES])
def test_a_closed_front_is_noticed_whatever_the_channel_waits_for(num_unsent_bytes: int) -> None:
    front, peer = socket.socketpair()
    channel = LoopChannel(peer)
    if num_unsent_bytes:
        channel.post(bytes(num_unsent_bytes))
    front.close()

    with pytest.raises(PeerGone):
        for _ in range(2):
            channel.exchange(None)
    channel.close()
