"""Fixtures of all tests."""

import socket

import pytest


@pytest.fixture
def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
