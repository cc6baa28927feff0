from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from macbuild.audit import AuditReport, audit_tree, load_policy
from macbuild.audit.memory import known_exports
from macbuild.macho.file import parse_macho
from macbuild.macho.image import Image
from macbuild.macho.symbols import Exports, read_exports
from macbuild.store import Facts
from tests.support import machobytes
from tests.support.audits import SYSTEM, TRIE, dylib, patch_command, put, with_imports

NAMES = [f"_{number:03}{'x' * 500}" for number in range(150)]
EXTERNAL = '\nparameters.external = ["@rpath/libbig.dylib"]\n'


class Kept:
    """A memory that a test can inspect."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.found: list[str] = []

    def get(self, key: str) -> bytes | None:
        if key in self.entries:
            self.found.append(key)
        return self.entries.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.entries[key] = value


def offset(number: int) -> bytes:
    """Write an unsigned LEB128 number in three bytes."""
    return bytes([number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14])


def big(names: Sequence[str] = NAMES, name: str = "libbig.dylib") -> bytes:
    """Return an unsigned dylib with a large export trie: of every four names one is weak, thread-local, re-exported."""
    nodes = [b"\x02\x00\x10\0", b"\x02\x04\x10\0", b"\x02\x01\x10\0", b"\x06\x08\x01_z\0\0\0"]
    edges, children = bytearray([0, len(names)]), bytearray()
    start = 2 + sum(len(name) + 4 for name in names)
    for index, exported in enumerate(names):
        edges += exported.encode() + b"\0" + offset(start + len(children))
        children += nodes[index % 4]
    trie = bytes(edges + children)
    plain = machobytes.dylib(id=f"@rpath/{name}", exports=[])
    return patch_command(patch_command(plain, TRIE, 8, len(plain)), TRIE, 12, len(trie)) + trie


def image(data: bytes) -> Image:
    return parse_macho(data, "x").images[0]


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a tree with many findings: a bad signature, undefined symbols, a path of a build machine."""
    strings = b"-I/Users/alice/x.h\0".ljust(64, b"\0")
    told = machobytes.dylib(id="@rpath/told.dylib", text=strings).replace(b"__text\0\0\0\0", b"__cstring\0")
    user = machobytes.dylib(
        id="@rpath/user.dylib", dylibs=[SYSTEM, "@rpath/libbig.dylib"], rpaths=["@loader_path"], exports=[]
    )
    return put(
        tmp_path / "tree",
        {
            "libbig.dylib": big(),
            "user.dylib": with_imports(user, [(NAMES[0], 2, False), ("_none", 2, False)]),
            "told.dylib": told,
            "spoilt.dylib": flip(dylib("spoilt.dylib"), 0x2000),
            "both.dylib": machobytes.fat(dylib("both.dylib"), dylib("both.dylib", arch="x86_64")),
            "cut.dylib": big()[:-5000],
        },
    )


def audits(root: Path, memory: Kept | Facts | None, policy: str = "release") -> AuditReport:
    return audit_tree(root, load_policy(policy), memory=memory)


def rules(report: AuditReport) -> set[str]:
    return {finding.rule for finding in report.findings}


def test_a_remembered_report_is_the_same(root: Path, tmp_path: Path) -> None:
    plain = audits(root, None)
    assert rules(plain) >= {"signature", "undefined-symbol", "build-path", "malformed", "unsigned-arm64"}
    (tmp_path / "facts").mkdir()
    for _ in range(2):
        assert audits(root, Facts(tmp_path / "facts", "code")) == plain


def change_exports(root: Path) -> None:
    put(root, {"libbig.dylib": big([*NAMES[1:], "_none"])})


def change_signature(root: Path) -> None:
    put(root, {"spoilt.dylib": dylib("spoilt.dylib")})


def spoil_second_slice(root: Path) -> None:
    second = dylib("both.dylib", arch="x86_64")
    put(root, {"both.dylib": machobytes.fat(dylib("both.dylib"), flip(second, 0x900))})


def change_string(root: Path) -> None:
    put(root, {"told.dylib": (root / "told.dylib").read_bytes().replace(b"alice", b"bob__")})


def rename(root: Path) -> None:
    (root / "spoilt.dylib").rename(root / "moved.dylib")


def swap(root: Path) -> None:
    (root / "told.dylib").rename(root / "t")
    (root / "spoilt.dylib").rename(root / "told.dylib")
    (root / "t").rename(root / "spoilt.dylib")


@pytest.mark.parametrize("change", [change_exports, change_signature, spoil_second_slice, change_string, rename, swap])
def test_a_change_is_noticed(root: Path, change: Callable[[Path], None]) -> None:
    """Times do not help: they are the same before and after."""
    for path in root.iterdir():
        os.utime(path, (1, 1))
    memory = Kept()
    before = audits(root, memory)
    change(root)
    for path in root.iterdir():
        os.utime(path, (1, 1))
    after = audits(root, None)
    assert after != before
    assert audits(root, memory) == after


def test_another_policy_gets_its_own_report(root: Path, tmp_path: Path) -> None:
    memory = Kept()
    other = tmp_path / "other.toml"
    other.write_text(
        'summary = "x"\nextends = "release"\n[parameters]\nbuild_paths = ["/nowhere"]\n'
        f'runtimes = [{{name = "f", defines = ["_g"], exports = ["{NAMES[3]}"]}}]\n'
    )
    for policy in ("release", str(other), "release"):
        assert audits(root, memory, policy) == audits(root, None, policy)
    assert "build-path" not in rules(audits(root, memory, str(other)))


def test_unverified_signatures_are_not_remembered_as_good(root: Path) -> None:
    memory = Kept()
    policy = load_policy("release")
    assert "signature" not in rules(audit_tree(root, policy, verify_signatures=False, memory=memory))
    assert "signature" in rules(audits(root, memory))


def test_a_remembered_entry_is_used(root: Path) -> None:
    """An entry is changed to say something else, which the report must then say."""
    memory = Kept()
    audits(root, memory)
    key = next(key for key, value in memory.entries.items() if b"alice" in value)
    memory.entries[key] = memory.entries[key].replace(b"alice", b"carol")
    assert any("/Users/carol" in finding.message for finding in audits(root, memory).findings)


@pytest.mark.parametrize("entry", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x90", b"\x94\xc4\x01", b"\xff" * 99])
def test_entries_without_facts_are_skipped(root: Path, entry: bytes) -> None:
    memory = Kept()
    plain = audits(root, memory)
    good = dict(memory.entries)
    memory.entries = dict.fromkeys(good, entry)
    assert audits(root, memory) == plain
    assert memory.entries == good


def test_damaged_entries_are_skipped_and_rewritten(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "facts"
    folder.mkdir()
    plain = audits(root, Facts(folder, "code"))
    good = {path: path.read_bytes() for path in folder.iterdir()}
    assert len(good) > 5
    for damage in (lambda data: data[:-1], lambda data: flip(data, len(data) - 1), lambda _: b""):
        for path, data in good.items():
            path.write_bytes(damage(data))
        assert audits(root, Facts(folder, "code")) == plain
        assert {path: path.read_bytes() for path in folder.iterdir()} == good


def test_remembered_exports_keep_all_their_properties() -> None:
    memory = Kept()
    data = big()
    plain = read_exports(image(data))
    assert plain.weak == {name.encode() for name in NAMES[1::4]}
    assert plain.thread_local == {name.encode() for name in NAMES[2::4]}
    assert plain.reexports == {name.encode(): (1, b"_z") for name in NAMES[3::4]}
    assert known_exports(image(data), memory) == plain
    assert known_exports(image(data), memory) == plain
    assert len(memory.found) == 1


def test_a_small_trie_is_read_without_the_memory() -> None:
    memory = Kept()
    assert known_exports(image(dylib()), memory) == Exports(frozenset([b"_f"]))
    assert memory.entries == {}


def test_the_exports_of_a_provider_are_remembered(root: Path, tmp_path: Path, unsigned_is_fine: str) -> None:
    with Path(unsigned_is_fine).open("a", encoding="utf-8") as file:
        file.write(EXTERNAL)
    other = put(tmp_path / "other", {"libbig.dylib": (root / "libbig.dylib").read_bytes()})
    for path in root.iterdir():
        if path.name != "user.dylib":
            path.unlink()
    memory = Kept()
    policy = load_policy(unsigned_is_fine)
    plain = audit_tree(root, policy, providers=[other])
    assert "undefined-symbol" in rules(plain)
    for _ in range(2):
        assert audit_tree(root, policy, providers=[other], memory=memory) == plain
    assert {key.partition("-")[0] for key in memory.found} == {"contents", "exports"}
    put(other, {"libbig.dylib": big([*NAMES, "_none"])})
    assert "undefined-symbol" not in rules(audit_tree(root, policy, providers=[other], memory=memory))


def test_every_part_of_a_large_image_counts(tmp_path: Path) -> None:
    """A changed byte in any part of 16 MiB breaks the signature."""
    good = machobytes.dylib(signed=True, text=bytes((2 << 24) + 100))
    memory = Kept()
    root = put(tmp_path / "t", {"libx.dylib": good})
    assert "signature" not in rules(audits(root, memory))
    for at in (0x3000, (1 << 24) + 5, (2 << 24) + 50):
        put(root, {"libx.dylib": flip(good, at)})
        assert "signature" in rules(audits(root, memory))


def test_an_image_is_recognized_at_another_offset() -> None:
    """A thin file is found again as a slice of a universal one."""
    memory = Kept()
    data = big()
    plain = known_exports(image(data), memory)
    merged = machobytes.fat(data, dylib(arch="x86_64"))
    assert known_exports(parse_macho(merged, "y").images[0], memory) == plain
    assert len(memory.entries) == 1
