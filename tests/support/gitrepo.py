"""Make small real git repositories for tests, independent of the user's settings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Repository"]


class Repository:
    """A git repository with a work tree, whose address is `url`."""

    def __init__(self, path: Path, *, partial: bool = True) -> None:
        self.path = path
        self.url = f"file://{path}"
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")
        self.git("config", "uploadpack.allowFilter", str(partial).lower())

    def git(self, *arguments: str) -> str:
        """Run git in the repository and return its output."""
        environment = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PATH": os.environ["PATH"]}
        who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        return subprocess.check_output(["git", *who, *arguments], cwd=self.path, env=environment, text=True).strip()

    def commit(self, files: Mapping[str, str] | None = None) -> str:
        """Write files, commit everything in the work tree, and return the commit."""
        for name, text in (files or {}).items():
            place = self.path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        self.git("add", "--all")
        self.git("commit", "-q", "--allow-empty", "-m", "m")
        return self.git("rev-parse", "HEAD")
