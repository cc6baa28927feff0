from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import msgspec
import pytest

from macbuild.errors import FetchError, IntegrityError, ToolError, UnreachableError
from macbuild.source.archive.unpack import unpack
from macbuild.source.fetch import git, packages, pipguard
from macbuild.source.fetch.addresses import file_name, redact
from macbuild.source.fetch.child import run
from macbuild.source.fetch.debian import source_lines, source_stanzas
from macbuild.source.fetch.download import Patience, Pin
from macbuild.source.fetch.providers import fetch
from macbuild.source.fetch.sources import (
    DebianSource,
    FileSource,
    GitSource,
    NpmSource,
    SdistSource,
    Source,
    UrlSource,
    WheelSource,
)

DATA = b"pinned bytes"
PIN = Pin("f.bin", len(DATA), hashlib.sha256(DATA).hexdigest())
WHEEL = WheelSource(package="torch", version="2.13.0", platform="macosx_14_0_arm64")
SDIST = SdistSource(package="grpcio", version="1.81.1")
DEBIAN = DebianSource(package="libx+1", file="libx+1_1.0~rc1+ds.orig.tar.gz")


class Folder:
    """Fetch in a folder of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.out = path / "out" / "file"

    def fetch(
        self, source: Source, pin: Pin | None = None, *, mirrors: tuple[str, ...] = (), offline: bool = False
    ) -> Pin:
        return fetch(source, pin, self.out, work=self.path / "work", base=self.path, mirrors=mirrors, offline=offline)

    def nothing_came(self) -> bool:
        work = self.path / "work"
        return not self.out.exists() and not (work.exists() and [p for p in work.iterdir() if p.suffix != ".lock"])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def tree(root: Path) -> Path:
    (root / "sub").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "sub/b").write_bytes(b"b" * 1_200_000)
    (root / "a").write_bytes(b"a")
    (root / "run").write_bytes(b"#!")
    (root / "run").chmod(0o755)
    (root / "link").symlink_to("sub/b")
    return root


def commit(repository: Path) -> str:
    """Make the tree a git repository with one commit."""
    environment = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PATH": os.environ["PATH"]}
    who = ["-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "m"]):
        subprocess.run(["git", *command], cwd=repository, env=environment, check=True)
    return subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=repository, text=True).strip()


def test_sources_are_read_from_data_by_their_type() -> None:
    for source in (
        UrlSource(urls=["https://example.org/a.zip"]), WHEEL, NpmSource(package="@scope/name", version="1.2.3-rc.1"),
        FileSource(path="x"), GitSource(url="https://example.org/r.git", commit="0" * 40), SDIST, DEBIAN,
    ):  # fmt: skip
        assert msgspec.json.decode(msgspec.json.encode(source), type=Source) == source


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"url","urls":[]}',
        '{"type":"url","urls":["ftp://example.org/x"]}',
        '{"type":"url","urls":["https://example.org/x"],"file":"../x"}',
        '{"type":"url","urls":["https://example.org/x"],"files":"x"}',
        '{"type":"wheel","package":"--pre","version":"1","platform":"any"}',
        '{"type":"wheel","package":"a","version":">=1","platform":"any"}',
        '{"type":"wheel","package":"a","version":"1","platform":"any --pre"}',
        '{"type":"sdist","package":"--pre","version":"1"}',
        '{"type":"sdist","package":"a @ file:///x","version":"1"}',
        '{"type":"sdist","package":"a","version":"1 --pre"}',
        '{"type":"sdist","package":"a","version":"1","platform":"any"}',
        '{"type":"debian","package":"-a","file":"-a_1.dsc"}',
        '{"type":"debian","package":"ab","file":"../ab_1.dsc"}',
        '{"type":"debian","package":"ab","file":"ab_/x"}',
        '{"type":"debian","package":"ab","file":"abc_1.dsc"}',
        '{"type":"debian","package":"ab"}',
        '{"type":"npm","package":"-g","version":"1.0.0"}',
        '{"type":"npm","package":"a","version":"latest"}',
        '{"type":"git","url":"ext::sh -c x","commit":"0000000000000000000000000000000000000000"}',
        '{"type":"git","url":"--upload-pack=x","commit":"0000000000000000000000000000000000000000"}',
        '{"type":"git","url":"https://example.org/x","commit":"main"}',
        '{"type":"file","path":""}',
        '{"type":"unknown"}',
    ],
)
def test_bad_sources_are_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Source)


def test_requests_distinguish_sources_and_hide_passwords() -> None:
    sources: list[Source] = [
        UrlSource(urls=["https://u:hidden@example.org/a?t=hidden"]),
        UrlSource(urls=["https://example.org/a"], file="b"), WHEEL,
        msgspec.structs.replace(WHEEL, python="3.13"), msgspec.structs.replace(WHEEL, abi="none"),
        NpmSource(package="a", version="1.0.0"), FileSource(path="a"),
        GitSource(url="https://u:hidden@example.org/r", commit="0" * 40), SDIST,
        msgspec.structs.replace(SDIST, version="1.81.2"), msgspec.structs.replace(WHEEL, package="grpcio"),
        DEBIAN, msgspec.structs.replace(DEBIAN, file="libx+1_1.dsc"),
    ]  # fmt: skip
    assert len({source.request() for source in sources}) == len(sources)
    for source in sources:
        assert "hidden" not in source.request() + source.describe()
        assert "\n" not in source.request() + source.describe()


def test_addresses_end_in_safe_names() -> None:
    assert file_name("https://example.org/a/b%2Fc.zip?x=/y") == "c.zip"
    assert file_name("https://example.org/%2e%2e") == "download"
    assert file_name("https://example.org") == "download"
    assert redact("https://u:p@example.org/a@b?c#d") == "https://example.org/a@b"
    assert redact("git@example.org:a/b") == "git@example.org:a/b"


@pytest.mark.parametrize("layout", ["{sha256}/{file}", "{file}"])
@pytest.mark.parametrize("offline", [False, True])
def test_a_mirror_folder_serves_every_kind_of_source(folder: Folder, layout: str, offline: bool) -> None:
    path = folder.path / "mirror" / layout.format(sha256=PIN.sha256, file=PIN.file)
    path.parent.mkdir(parents=True)
    path.write_bytes(DATA)
    for source in (WHEEL, SDIST, DEBIAN, UrlSource(urls=["http://name.invalid/x"]), FileSource(path="missing")):
        assert folder.fetch(source, PIN, mirrors=(str(folder.path / "mirror"),), offline=offline) == PIN
        assert folder.out.read_bytes() == DATA


def test_wrong_bytes_in_a_mirror_are_named_and_not_used(folder: Folder) -> None:
    (folder.path / PIN.file).write_bytes(b"other")
    with pytest.raises(UnreachableError, match="has 5 bytes, but 12 are pinned"):
        folder.fetch(WHEEL, PIN, mirrors=(str(folder.path),), offline=True)
    assert folder.nothing_came()


def test_offline_uses_no_network(folder: Folder) -> None:
    for source in (
        WHEEL,
        SDIST,
        DEBIAN,
        UrlSource(urls=["http://127.0.0.1/x"]),
        NpmSource(package="a", version="1.0.0"),
    ):
        with pytest.raises(UnreachableError, match="offline"):
            folder.fetch(source, PIN, mirrors=("http://127.0.0.1/",), offline=True)
    assert folder.nothing_came()


def test_a_local_file_is_copied_and_checked(folder: Folder) -> None:
    (folder.path / "f.bin").write_bytes(DATA)
    assert folder.fetch(FileSource(path="f.bin"), offline=True) == PIN
    assert folder.out.read_bytes() == DATA
    folder.out.unlink()
    (folder.path / "f.bin").write_bytes(b"pinned bytez")
    with pytest.raises(IntegrityError, match=PIN.sha256):
        folder.fetch(FileSource(path="f.bin"), PIN)
    with pytest.raises(UnreachableError):
        folder.fetch(FileSource(path="missing"), PIN)
    assert folder.nothing_came()


def test_a_local_folder_becomes_the_same_archive_everywhere(folder: Folder) -> None:
    first = folder.fetch(FileSource(path=str(tree(folder.path / "one/src"))))
    unpack(folder.out, folder.path / "unpacked")
    os.utime(tree(folder.path / "two/src") / "a", (1, 1))
    (folder.path / "two/src/.git").mkdir()
    (folder.path / "two/src/sub/b").chmod(0o600)
    assert folder.fetch(FileSource(path="two/src"), first) == first
    found = {path.relative_to(folder.path / "unpacked").as_posix() for path in (folder.path / "unpacked").rglob("*")}
    assert found == {"a", "empty", "link", "run", "sub", "sub/b"}
    assert os.access(folder.path / "unpacked/run", os.X_OK)
    assert not os.access(folder.path / "unpacked/a", os.X_OK)
    (folder.path / "two/src/a").write_bytes(b"b")
    with pytest.raises(IntegrityError):
        folder.fetch(FileSource(path="two/src"), first)


def test_a_folder_with_a_pipe_is_refused(folder: Folder) -> None:
    os.mkfifo(tree(folder.path / "src") / "pipe")
    with pytest.raises(FetchError, match="neither a file"):
        folder.fetch(FileSource(path="src"))
    assert folder.nothing_came()


def test_a_git_commit_becomes_the_archive_of_its_stored_tree(folder: Folder) -> None:
    repository = tree(folder.path / "repository")
    (repository / ".gitattributes").write_text("a export-ignore\n* text eol=crlf\n")
    (repository / "lines").write_bytes(b"1\n2\n")
    source = GitSource(url=f"file://{repository}", commit=commit(repository))
    assert source.commit is not None
    pin = folder.fetch(source)
    assert pin.file == f"repository-{source.commit[:12]}.tar"
    unpack(folder.out, folder.path / "unpacked")
    assert (folder.path / "unpacked/a").read_bytes() == b"a"
    assert (folder.path / "unpacked/lines").read_bytes() == b"1\n2\n"
    assert (folder.path / "unpacked/link").readlink() == Path("sub/b")
    assert os.access(folder.path / "unpacked/run", os.X_OK)
    (repository / "a").write_bytes(b"later")
    commit(repository)
    assert folder.fetch(source, pin) == pin


def test_git_hooks_of_the_user_do_not_run(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tree(folder.path / "repository")
    source = GitSource(url=f"file://{repository}", commit=commit(repository))
    hooks = folder.path / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-checkout", "post-merge"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {folder.path}/ran\n")
        (hooks / name).chmod(0o755)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(folder.path / "config"))
    (folder.path / "config").write_text(f"[core]\n\thooksPath = {hooks}\n")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    folder.fetch(source)
    assert not (folder.path / "ran").exists()


def test_a_missing_commit_or_repository_is_unreachable(folder: Folder) -> None:
    repository = tree(folder.path / "repository")
    commit(repository)
    with pytest.raises(UnreachableError, match="has no commit 0000"):
        folder.fetch(GitSource(url=f"file://{repository}", commit="0" * 39 + "1"))
    with pytest.raises(UnreachableError, match="fatal:"):
        folder.fetch(GitSource(url=f"file://{folder.path}/missing", commit="0" * 40))
    assert folder.nothing_came()


def test_a_missing_program_is_a_tool_error(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder.path))
    for source in (NpmSource(package="a", version="1.0.0"), GitSource(url="https://name.invalid/", commit="0" * 40)):
        with pytest.raises(ToolError, match="is not installed") as caught:
            folder.fetch(source)
        assert caught.value.hint is not None
    monkeypatch.setattr(sys, "executable", str(folder.path / "python"))
    for package in (WHEEL, SDIST):
        with pytest.raises(ToolError):
            folder.fetch(package)
    assert folder.nothing_came()


def test_a_machine_without_apt_get_asks_for_a_mirror(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder.path))
    with pytest.raises(UnreachableError, match="has no apt-get") as caught:
        folder.fetch(DEBIAN)
    assert caught.value.hint is not None
    assert "mirror" in caught.value.hint
    assert folder.nothing_came()


LINES = """
deb http://a/b c d # x
#deb http://off/ c
  deb-src\t[trusted=yes] http://a/ c/
deb cdrom:[x]/ c d
debx y
"""
STANZAS = """# head

Types: deb
# inside
URIs: http://a/
Suites: b
Signed-By:
 -----BEGIN
 .
 x=
 \t
Enabled: no
TYPES: deb
 deb-src
URIs: http://b/

Types: deb
URIs: cdrom:[x]/

URIs: http://c/
"""


def test_archives_of_programs_become_archives_of_sources() -> None:
    assert source_lines(LINES) == ["deb-src http://a/b c d # x", "deb-src [trusted=yes] http://a/ c/"]
    first = "Types: deb-src\nURIs: http://a/\nSuites: b\nSigned-By:\n -----BEGIN\n .\n x="
    assert source_stanzas(STANZAS) == [first, "Enabled: no\nTypes: deb-src\nURIs: http://b/"]


GUARD = Path(pipguard.__file__)


@pytest.mark.parametrize(
    "arguments",
    [["-c", "open('ran', 'w')"], ["setup.py"], ["run.py", "build_wheel", "."], ["-m", "run", "x", "y"]],
)
def test_the_guard_runs_nothing_instead_of_python(tmp_path: Path, arguments: list[str]) -> None:
    for name in ("setup.py", "run.py"):
        (tmp_path / name).write_text("open('ran', 'w')")
    command = [sys.executable, "-I", str(GUARD), "answer", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("macbuild: pip ")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.run([os.environ['REAL'], '-c', code])",
        "subprocess.run(['sh', '-c', 'touch ran'], cwd='.')",
        "subprocess.run(['sh', '-c', 'touch ran'], executable=os.environ['REAL'])",
    ],
)
def test_a_pip_that_starts_another_program_is_stopped(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    pip = folder.path / "python/pip/__main__.py"
    pip.parent.mkdir(parents=True)
    (pip.parent / "__init__.py").touch()
    mark = f"open({str(folder.path / 'ran')!r}, 'w')"
    pip.write_text(f"import os, subprocess\ncode = {mark!r}\nos.chdir({str(folder.path)!r})\n{start}\n")
    monkeypatch.setenv("PYTHONPATH", str(pip.parent.parent))
    monkeypatch.setenv("REAL", sys.executable)
    with pytest.raises(FetchError, match="pip may not start"):
        folder.fetch(SDIST)
    assert not (folder.path / "ran").exists()
    assert folder.nothing_came()


def test_an_sdist_that_unpacks_beyond_the_limit_is_refused(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = folder.path / "python/pip/__main__.py"
    pip.parent.mkdir(parents=True)
    (pip.parent / "__init__.py").touch()
    program = "import os, time\nopen(os.path.join(os.environ['TMPDIR'], 'x'), 'wb').truncate(5000)\ntime.sleep(60)\n"
    pip.write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(pip.parent.parent))
    with pytest.raises(FetchError, match="larger than the limit of 4000 bytes"):
        fetch(SDIST, None, folder.out, work=folder.path / "work", base=folder.path, limit=4000)
    assert folder.nothing_came()


SLEEPER = "import signal, subprocess, sys, time\nprint('up', flush=True)\nsubprocess.Popen(['sleep', '59']).wait()"


def sleepers() -> list[str]:
    listing = subprocess.check_output(["ps", "-eo", "ppid,args"], text=True)
    return [line for line in listing.splitlines() if line.split()[1:] == ["sleep", "59"]]


def test_an_exception_in_the_heartbeat_ends_the_program_tree(tmp_path: Path) -> None:
    before = sleepers()
    start = time.monotonic()

    def beat() -> None:
        if time.monotonic() - start > 0.4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([sys.executable, "-c", SLEEPER], tmp_path, beat=beat)
    assert time.monotonic() - start < 40
    assert sleepers() == before


def test_a_program_that_ignores_interrupts_is_terminated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macbuild.source.fetch.child._GRACE", 0.3)
    program = (
        "import signal, time\n"
        "for number in (2, 15): signal.signal(number, signal.SIG_IGN)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)"
    )
    start = time.monotonic()

    def stop(line: str) -> None:
        raise ConnectionAbortedError(line)

    with pytest.raises(ConnectionAbortedError):
        run([sys.executable, "-c", program], tmp_path, beat=lambda: None, on_line=stop)
    assert time.monotonic() - start < 40


def test_a_silent_program_is_ended_but_not_while_its_files_grow(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="no sign of life"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, beat=lambda: None, silence=2)
    program = "import time\nfor n in range(25): open(f'f{n}', 'w').write('x'); time.sleep(0.1)\nprint('end')"
    assert run([sys.executable, "-c", program], tmp_path, beat=lambda: None, silence=2).lines == ("end",)


def test_the_archive_of_a_tree_is_plain_pax(folder: Folder) -> None:
    folder.fetch(FileSource(path=str(tree(folder.path / "src"))))
    with tarfile.open(folder.out) as archive:
        assert {(info.uid, info.gid, info.uname, info.mtime) for info in archive} == {(0, 0, "", 315532800)}


def test_download_by_pip_that_hardly_moves_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "pip.py"
    script.write_text(
        "import itertools, time\n"
        "for done in itertools.count(1):\n"
        "    print(f'Progress {done} of 100000', flush=True)\n"
        "    time.sleep(0.05)\n"
    )
    monkeypatch.setattr(packages, "PATIENCE", Patience(window=0.5, minimum=1000))
    source = WheelSource(package="demo", version="1.0", platform="macosx_11_0_arm64")
    pip = packages._Pip(source, tmp_path, lambda *_: None, 1 << 20)
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=r"only \d+ bytes arrived in 0\.5 seconds") as caught:
        pip.download([sys.executable, str(script)], [], tmp_path)
    assert time.monotonic() - began < 20
    assert caught.value.where == source.describe()


def test_git_is_told_to_give_up_a_slow_server() -> None:
    assert {"http.lowSpeedLimit=1092", "http.lowSpeedTime=60"} <= set(git._COMMAND)
