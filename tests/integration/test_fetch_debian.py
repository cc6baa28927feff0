"""Test that apt-get fetches single files of source packages; most tests give it an archive in a folder."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import filelock
import pytest
from msgspec import structs

from macbuild.errors import FetchError, IntegrityError, UnreachableError
from macbuild.source.archive.unpack import unpack
from macbuild.source.fetch.download import Pin
from macbuild.source.fetch.providers import fetch
from macbuild.source.fetch.sources import DebianSource

DEMO = DebianSource(package="demo", file="demo_1.0.orig.tar.gz")
LINE = "deb [trusted=yes] file:{archive} ./"
STANZA = "Types: deb\nURIs: file:{archive}\nSuites: ./\nTrusted: yes\n"


@dataclass
class Machine:
    """A machine whose apt knows one archive, a folder."""

    root: Path

    @property
    def stamp(self) -> Path:
        return self.root / "work/apt/updated"

    @property
    def archive(self) -> Path:
        return self.root / "archive"

    def configure(self, name: str, text: str) -> None:
        """Write the sources of apt as its only file."""
        folder = self.root / "sources.list.d"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / name).write_text(text.format(archive=self.archive))

    def publish(self, source: DebianSource, content: bytes, version: str = "1.0-1~x") -> None:
        """Add a version of a package to the archive."""
        files = {f"demo_{version}.dsc": b"d", source.file: content, f"demo_{version}.debian.tar.xz": b"r"}
        lists = {"Files": "md5", "Checksums-Sha256": "sha256"}
        text = f"Package: demo\nBinary: demo\nVersion: 1:{version}\nFormat: 3.0 (quilt)\nDirectory: .\n"
        self.archive.mkdir(exist_ok=True)
        for name, data in files.items():
            (self.archive / name).write_bytes(data)
        for key, kind in lists.items():
            rows = [f" {hashlib.new(kind, data).hexdigest()} {len(data)} {name}\n" for name, data in files.items()]
            text += f"{key}:\n{''.join(rows)}"
        with (self.archive / "Sources").open("a") as index:
            index.write(text + "\n")

    def fetch(self, source: DebianSource, pin: Pin | None = None, *, name: str = "out", limit: int = 1 << 20) -> Pin:
        out, work = self.root / name, self.root / "work" / name
        return fetch(source, pin, out, work=work, shared=self.root / "work", base=self.root, limit=limit)

    def nothing_came(self) -> bool:
        return not (self.root / "out").exists() and list((self.root / "work/out").iterdir()) == []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    assert shutil.which("apt-get"), "these tests need a machine with Debian's apt-get"
    machine = Machine(tmp_path)
    machine.configure("test.list", LINE)
    machine.publish(DEMO, b"upstream")
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{tmp_path}/sources.list";\nDir::Etc::sourceparts "{tmp_path}/sources.list.d";\n'
        f'APT::Update::Pre-Invoke {{ "touch {tmp_path}/ran"; }};\nAcquire::Retries "0";\n'
        f'APT::Update::Post-Invoke {{ "touch {tmp_path}/ran"; }};\n'
        f'APT::Update::Post-Invoke-Success {{ "touch {tmp_path}/ran"; }};\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    return machine


def test_a_file_of_real_archives_is_the_same_twice_and_unpacks(tmp_path: Path) -> None:
    assert shutil.which("apt-get"), "these tests need a machine with Debian's apt-get"
    source = DebianSource(package="libb64", file="libb64_1.2.orig.tar.gz")
    work = tmp_path / "work"
    calls: list[int] = []
    pin = fetch(source, None, tmp_path / "one", work=work, base=tmp_path, progress=lambda done, _: calls.append(done))
    assert fetch(source, pin, tmp_path / "two", work=work, base=tmp_path) == pin
    assert pin.file == source.file
    assert calls[-1] == pin.size
    assert [path.name for path in work.iterdir()] == ["apt"]
    unpack(tmp_path / "two", tmp_path / "tree")
    assert list((tmp_path / "tree").glob("*/include/b64/encode.h"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.list", LINE),
        ("a.list", f"# {LINE}\ndeb cdrom:[Debian]/ stable main\n{LINE}\ndeb-src [trusted=yes] file:{{archive}} ./\n"),
        ("a.sources", STANZA),
        ("a.sources", STANZA.replace("Types: deb", "# comment\nTypes: deb\n deb-src") + "\n" + STANZA),
        ("a.sources", "types: deb-src\n" + STANZA.partition("\n")[2] + "\n\nTypes: deb\nURIs: cdrom:x\nSuites: ./\n"),
    ],
)
def test_both_formats_work_and_the_system_is_unchanged(machine: Machine, name: str, text: str) -> None:
    machine.configure(name, text)
    pin = machine.fetch(DEMO)
    assert pin == Pin(DEMO.file, 8, hashlib.sha256(b"upstream").hexdigest())
    assert (machine.root / "out").read_bytes() == b"upstream"
    assert not (machine.root / "out").is_symlink()
    assert not (machine.root / "ran").exists()
    assert list((machine.root / "work/out").iterdir()) == []
    system = subprocess.check_output(["apt-config", "shell", "F", "Dir::State::lists/d"], text=True).split("'")[1]
    assert not list(Path(system).glob("*" + str(machine.archive).replace("/", "_") + "*"))


@pytest.mark.parametrize("file", ["demo_1.0-1~x.dsc", "demo_1.0-1~x.debian.tar.xz"])
def test_other_files_of_a_source_package_are_fetched_too(machine: Machine, file: str) -> None:
    machine.publish(DEMO, b"upstream")
    assert machine.fetch(structs.replace(DEMO, file=file)).file == file


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        (structs.replace(DEMO, file="demo_9.tar.gz"), "other files of demo: demo_1.0-1~x.debian.tar.xz, ", "a mirror"),
        (DebianSource(package="none", file="none_1.tar.gz"), "archives have no source package", "mirror"),
    ],
)
def test_a_missing_file_is_unreachable_and_existing_ones_are_named(
    machine: Machine, source: DebianSource, message: str, hint: str
) -> None:
    with pytest.raises(UnreachableError, match=message) as caught:
        machine.fetch(source)
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    assert machine.nothing_came()


def test_indexes_are_reused_until_old_and_incomplete(machine: Machine) -> None:
    machine.fetch(DEMO)
    later = DebianSource(package="demo", file="demo_2.0.orig.tar.gz")
    machine.publish(later, b"later", "2.0-1")
    with pytest.raises(UnreachableError, match="other files"):
        machine.fetch(later)
    first = machine.stamp.read_bytes()
    os.utime(machine.stamp, (1, 1))
    machine.fetch(DEMO)
    assert machine.stamp.stat().st_mtime == 1
    assert machine.fetch(later).size == 5
    assert machine.stamp.stat().st_mtime > time.time() - 60
    machine.configure("test.list", LINE + "\ndeb [trusted=yes] copy:{archive} ./")
    machine.fetch(DEMO)
    assert machine.stamp.read_bytes() != first


def test_a_missing_or_changed_file_is_refused(machine: Machine) -> None:
    machine.fetch(DEMO)
    os.utime(machine.stamp, (1, 1))
    (machine.root / "out").unlink()
    (machine.archive / DEMO.file).write_bytes(b"Upstream")
    with pytest.raises(UnreachableError, match="Failed to fetch"):
        machine.fetch(DEMO)
    assert machine.stamp.stat().st_mtime > 1
    (machine.archive / DEMO.file).unlink()
    with pytest.raises(UnreachableError, match="Failed to fetch"):
        machine.fetch(DEMO)
    assert machine.nothing_came()


def test_an_unreachable_archive_is_named_only_if_needed(machine: Machine) -> None:
    machine.configure("test.list", LINE + "\ndeb http://user:hidden@127.0.0.1:9/ stable main")
    machine.fetch(DEMO)
    with pytest.raises(UnreachableError, match=r"that answer have no source package none; .*127\.0\.0\.1") as caught:
        machine.fetch(DebianSource(package="none", file="none_1.tar.gz"))
    assert "hidden" not in str(caught.value)


def test_a_machine_without_archives_says_so(machine: Machine) -> None:
    machine.configure("test.list", "# nothing\n")
    with pytest.raises(UnreachableError, match="no archive configured"):
        machine.fetch(DEMO)


def test_too_many_or_wrong_bytes_are_refused(machine: Machine) -> None:
    with pytest.raises(FetchError, match="larger than the limit of 7 bytes"):
        machine.fetch(DEMO, limit=7)
    with pytest.raises(IntegrityError):
        machine.fetch(DEMO, Pin(DEMO.file, 8, "0" * 64))
    assert machine.nothing_came()


def test_several_at_once_share_the_indexes(machine: Machine) -> None:
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        pins = list(pool.map(lambda name: machine.fetch(DEMO, name=name), ("out", "two", "three")))
    assert len(set(pins)) == 1


def test_waiting_for_the_indexes_can_be_interrupted(machine: Machine) -> None:
    machine.stamp.parent.mkdir(parents=True)

    def stop(done: int, total: int | None) -> None:
        raise KeyboardInterrupt(done, total)

    with filelock.FileLock(machine.stamp.parent / "lock"), pytest.raises(KeyboardInterrupt):
        fetch(DEMO, None, machine.root / "x", work=machine.root / "work", base=machine.root, progress=stop)
