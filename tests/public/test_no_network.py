"""No test asks the network: :func:`tests.conftest.refuse_network` watches their process, and the package's import."""

import socket

import pytest


def test_who_asks_is_noticed():
    with pytest.raises(RuntimeError, match=r"a test asks the network for .192\.0\.2\.1."):
        socket.create_connection(("192.0.2.1", 9), timeout=1)
    with pytest.raises(RuntimeError, match=r"a test asks the network for 'example\.org'"):
        socket.getaddrinfo("example.org", 80)


def test_this_machine_may_be_asked():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
