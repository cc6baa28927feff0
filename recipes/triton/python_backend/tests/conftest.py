"""Let the tests find the code they share with those of the server."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "backends/backend_kit/python"))
