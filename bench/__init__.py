"""Measure each number that the documentation claims, with the command `python -m bench`."""

import sys
from pathlib import Path

# The shared code of the backends' tests also starts servers here.
sys.path.insert(0, str(Path(__file__).parents[1] / "recipes/backends/backend_kit/python"))
