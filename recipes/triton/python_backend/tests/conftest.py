"""Make the code shared with the tests of the server importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "backends/backend_kit/python"))
