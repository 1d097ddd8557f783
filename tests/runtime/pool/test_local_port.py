"""The port between members of one process keeps what every port promises."""

from __future__ import annotations

import pytest

from support.port_contract import PAGE_BYTES, Joined, PortContract
from tenantry_runtime.pool.local_port import LocalExchange


class LocalPair:
    def __init__(self) -> None:
        exchange = LocalExchange()
        self.address = "there"
        self.sender = exchange.port("here", num_slots=4)
        self.receiver = exchange.port(self.address, num_slots=4)
        self.sender.allocate(PAGE_BYTES)
        self.receiver.allocate(PAGE_BYTES)

    def settle(self) -> None:
        """Everything has arrived by the time it is said."""

    def lose_sender(self) -> None:
        self.sender.leave()

    def lose_receiver(self) -> None:
        self.receiver.leave()


class TestLocalPort(PortContract):
    @pytest.fixture
    def joined(self) -> Joined:
        return LocalPair()
