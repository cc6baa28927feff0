"""Where the tests find what they share with those of the server."""

from __future__ import annotations

import sys
from pathlib import Path

RECIPES = Path(__file__).parents[2]
sys.path[:0] = [str(RECIPES / "backend_kit" / "python"), str(RECIPES / "tritonserver" / "tests")]
