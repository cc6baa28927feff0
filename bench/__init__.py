"""Each number that the documentation claims, as a command: `python -m bench`."""
