"""Make a complete tiny project for tests: recipes, lock, sources with small dylibs; a run takes milliseconds."""

from __future__ import annotations

import contextlib
import copy
import gzip
import hashlib
import io
import os
import shutil
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from macbuild.commands.build import BuildResult, build
from macbuild.commands.project import Project
from macbuild.config import load_settings
from macbuild.events import Event
from macbuild.plan.model import Plan
from macbuild.recipe.load import load_recipe
from macbuild.recipe.lock import source_refs
from macbuild.source.fetch.sources import GitSource
from tests.support import machobytes


def tarball(files: Mapping[str, bytes | str]) -> bytes:
    """Return a tar.gz; a value of type str is the target of a symbolic link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), compresslevel=1, mtime=0)


def files(name: str, arch: str, *, dylibs: Sequence[str] = machobytes.SYSTEM, salt: bytes = b"") -> dict[str, bytes]:
    """Return the contents of a source of one architecture."""
    dylib = machobytes.dylib(arch, id=f"/build/lib{name}.dylib", dylibs=dylibs, text=b"\xc0\x03\x5f\xd6" * 16 + salt)
    return {f"lib/lib{name}.dylib": dylib, f"include/{name}.h": b"int f(void);\n", "LICENSE": b"Do as you like.\n"}


@dataclass
class Sample:
    """A project in its own folder."""

    root: Path
    recipes: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    @property
    def dist(self) -> Path:
        return self.root / "dist"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def archives(self) -> Path:
        return self.root / "archives"

    def recipe_path(self, name: str) -> Path:
        return self.root / "recipes" / name / "recipe.toml"

    def add(
        self,
        name: str,
        *,
        archs: Sequence[str] = ("arm64",),
        version: str = "1.0",
        content: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a component, or a release to one, whose sources are local archives."""
        recipe = self.recipes.setdefault(
            name,
            {
                "schema": 1,
                "name": name,
                "summary": f"The {name} library",
                "homepage": "https://example.org",
                "license": "MIT",
                "releases": [],
                "layouts": {"archive": [{"from": "lib/**/*", "to": "lib/"}, {"from": "include/*", "to": "include/"}]},
            },
        )
        release: dict[str, Any] = {"version": version}
        for arch in archs:
            archive = f"{name}-{version}-{arch}.tar.gz"
            self.archives.mkdir(parents=True, exist_ok=True)
            (self.archives / archive).write_bytes(tarball(content or files(name, arch)))
            fetch = {"type": "file", "path": f"../../archives/{name}-{{version}}-{arch}.tar.gz"}
            source = {"name": "local", "layout": "archive", "fetch": fetch}
            release[arch] = {"minimum_macos": "11.0", "sources": [source]}
        recipe["releases"].append(release)
        self.write()

    def add_built(self, name: str, files: Mapping[str, str], **recipe: Any) -> None:
        """Add a component of version 1.0 that is built from files in its folder; `facts` are those of the release."""
        facts: dict[str, Any] = {"minimum_macos": "14.0", **recipe.pop("facts", {})}
        self.recipes[name] = {
            "schema": 1,
            "name": name,
            "summary": f"The {name} plug-in",
            "homepage": "https://example.org",
            "license": "MIT",
            "releases": [{"version": "1.0", **facts}],
            "build": {"inputs": list(files)},
            **recipe,
        }
        for path, text in files.items():
            target = self.root / "recipes" / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        self.write()

    def sources(self, name: str, arch: str = "arm64", release: int = 0) -> list[dict[str, Any]]:
        """Return the sources of a release, to be changed before `write`."""
        found: list[dict[str, Any]] = self.recipes[name]["releases"][release][arch]["sources"]
        return found

    def serve_first(self, name: str, url: str, arch: str = "arm64") -> None:
        """Put an address before the local source of a component; its pin is that of the same archive."""
        local = self.sources(name, arch)[0]
        archive = Path(local["fetch"]["path"]).name
        remote = {"name": "remote", "layout": "archive", "fetch": {"type": "url", "urls": [f"{url}/{archive}"]}}
        self.sources(name, arch).insert(0, remote)
        self.write()

    def serve_only(self, name: str, url: str, arch: str = "arm64") -> None:
        """Replace the local source of a component with an address."""
        self.serve_first(name, url, arch)
        del self.sources(name, arch)[1]
        self.write()

    def write(self) -> None:
        """Write all recipes and a lock that pins every source but those from git, which no test reaches."""
        pinned = []
        for name, recipe in self.recipes.items():
            path = self.recipe_path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(tomli_w.dumps(recipe))
            for ref, candidate in source_refs(load_recipe(path)):
                if isinstance(candidate.fetch, GitSource):
                    continue
                file = candidate.fetch.request().rsplit("/", 1)[-1]
                data = (self.archives / file).read_bytes()
                row = {key: getattr(ref, key) for key in ("component", "version", "arch", "source", "request")}
                pinned.append({**row, "file": file, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
        (self.root / "macbuild.lock").write_text(tomli_w.dumps({"version": 1, "pinned": pinned, "unpinned": []}))

    def project(self, **settings: object) -> Project:
        """Return the project with settings given as flags."""
        flags = {"arch": "arm64", "cache_dir": str(self.cache), "jobs": 2, **settings}
        return Project(load_settings(flags, {}, self.root), {}, self.root)

    def plan(self, *components: str, **settings: object) -> Plan:
        project = self.project(**settings)
        return project.planner().plan(project.request(components))

    def make(self, *components: str, **settings: object) -> BuildResult:
        """Run the main job; its events are in `events`."""
        self.events.clear()
        return build(self.project(**settings), components, self.events.append)

    def copy(self, root: Path) -> Sample:
        """Return the same project, with all its results, in another folder."""
        shutil.copytree(self.root, root, symlinks=True)
        return Sample(root, copy.deepcopy(self.recipes))

    def content(self) -> dict[str, bytes]:
        """Return the files in dist."""
        return {path.name: path.read_bytes() for path in sorted(self.dist.iterdir())} if self.dist.exists() else {}


def work_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands in a folder with a cache of its own, for arm64, and without any other setting of the user."""
    for name in list(os.environ):
        if name.startswith("MACBUILD_") or name in {"NO_COLOR", "FORCE_COLOR", "CI", "GITHUB_STEP_SUMMARY"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("MACBUILD_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setenv("MACBUILD_ARCH", "arm64")
    monkeypatch.chdir(folder)


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of all files below a folder, which show whether anything was written."""
    return {
        path.relative_to(root).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


@contextlib.contextmanager
def server(answers: Mapping[str, bytes | int]) -> Iterator[str]:
    """Serve bytes, or an error status, by the last part of the path; anything else is not found."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.rsplit("/", 1)[-1], 404)
            body = answer if isinstance(answer, bytes) else b""
            self.send_response(200 if isinstance(answer, bytes) else answer)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{web.server_address[1]}"
    finally:
        web.shutdown()
        thread.join()
        web.server_close()
