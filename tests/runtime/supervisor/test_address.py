"""The address to listen on, and the one to call."""

from __future__ import annotations

import socket

import pytest

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.supervisor.address import Address


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8787"),
        ("0.0.0.0", "http://127.0.0.1:8787"),
        ("::1", "http://[::1]:8787"),
        ("::", "http://[::1]:8787"),
        ("localhost", "http://localhost:8787"),
    ],
)
def test_the_url_is_one_that_this_machine_can_call(host: str, url: str) -> None:
    assert Address(host, 8787).url == url


def test_a_port_in_use_is_refused_with_the_option_that_helps() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(ConfigurationError, match=f"port {port} is in use.*--port"):
            Address("127.0.0.1", port).check_free()

    Address("127.0.0.1", port).check_free()


def test_a_host_of_another_machine_is_refused() -> None:
    # TEST-NET-1, which no machine has
    with pytest.raises(ConfigurationError, match=r"cannot listen on 192\.0\.2\.1:8787"):
        Address("192.0.2.1", 8787).check_free()
