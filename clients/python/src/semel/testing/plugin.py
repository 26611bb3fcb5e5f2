"""The pytest fixture ``semel_server``: a server for all tests of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import TestServer


@pytest.fixture(scope="session")
def semel_server() -> Iterator[TestServer]:
    """A server for all tests of a session."""
    with TestServer() as server:
        yield server
