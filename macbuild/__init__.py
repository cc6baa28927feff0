"""Build, fix, sign, audit and pack Triton and its backends for macOS."""

__version__ = "0.1.0"
