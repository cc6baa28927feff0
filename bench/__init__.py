"""Each number that the documentation claims, as a command: `python -m bench`."""

import sys
from pathlib import Path

# What the tests of every backend share starts servers here too.
sys.path.insert(0, str(Path(__file__).parents[1] / "recipes/backends/backend_kit/python"))
