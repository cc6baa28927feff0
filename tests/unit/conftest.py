"""Define fixtures of the unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def unsigned_is_fine(tmp_path: Path) -> str:
    """Return a policy that ignores signatures, for images that were patched."""
    path = tmp_path / "unsigned.toml"
    path.write_text('extends = "release"\nseverity.unsigned = "off"\nseverity.unsigned-arm64 = "off"\n')
    return str(path)
