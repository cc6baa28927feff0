"""Where the tests find what they share with those of the server."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "backend_kit" / "python"))
