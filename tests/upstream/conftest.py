"""What was built of the synthetic upstream, once for a session."""

from __future__ import annotations

import pytest

from tests.upstream.running import World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Builds for a Mac and for this machine, and servers."""
    return World(tmp_path_factory.mktemp("upstream"))
