"""The seeds that code makes; those that a run found are files only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.fuzz.archives import archives
from tests.fuzz.common import CONTROL
from tests.fuzz.machos import dylib, exporting, fat_files, signed, thin_images

_RECIPE = """\
schema = 1
name = "demo"
summary = "s"
homepage = "https://example.org"
license = "MIT"
releases = [{ version = "2.2.2", arm64 = { minimum_macos = "11.0", sources = [
  { name = "a", layout = "l", fetch = { type = "url", urls = ["https://example.org/a.zip"] } },
  { name = "b", layout = "l", fetch = { type = "wheel", package = "p", version = "1", platform = "macosx_11_0" } },
  { name = "c", layout = "l", fetch = { type = "npm", package = "@a/b", version = "1.2.3" } },
  { name = "d", layout = "l", fetch = { type = "file", path = "x" } },
  { name = "e", layout = "l", fetch = { type = "git", url = "https://example.org/a", commit = "%s" } } ] } }]
layouts = { l = [{ from = "a/**/*", to = "lib/", exclude = ["b"], reason = "r" }] }
links = [{ path = "a", target = "b", reason = "r" }]
repair = { ids = [{ file = "a", id = "b", reason = "r" }], dependencies = [{ match = "a", to = "b", reason = "r" }] }
merge = { prefer = [{ file = "a", arch = "arm64", reason = "r" }] }
audit = { exempt = [{ rule = "sdk", file = "a", reason = "r" }] }
""" % ("0" * 40)
_LOCK = """\
version = 1
[[pinned]]
component = "demo"
version = "2.2.2"
arch = "arm64"
source = "a"
request = "url https://example.org/a.zip"
file = "a.zip"
size = 1
sha256 = "%s"
[[unpinned]]
component = "demo"
version = "2.2.2"
arch = "x86_64"
source = "b"
request = "r"
reason = "r"
""" % ("0" * 64)
_SETTINGS = """\
arch = "arm64"
jobs = 2
dist = "~/d"
mirrors = ["m"]
offline = true
color = "never"
policy = "wheel"
"""
_ENVIRONMENT = "MACBUILD_JOBS=2\nMACOSX_DEPLOYMENT_TARGET=14.0\nMACBUILD_OFFLINE=1\nMACBUILD_MIRRORS=a:b\nHOME=/x\n"
_POLICY = """\
extends = "release"
summary = "s"
[severity]
sdk = "off"
[parameters]
banned_exports = ["__Z*", "[a-c]?"]
"""


def write_seeds(folder: Path, target: str) -> None:
    """Write the seeds of a target that are made by code; other files there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _MAKERS[target]().items():
        (folder / name).write_bytes(content)


def _with_control(control: bytes, images: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: control.ljust(CONTROL, b"\0") + image for name, image in images.items()}


def _editor() -> dict[str, bytes]:
    names = ("unsigned", "signed-twice-hashed", "signed-hardened", "arm64", "bind-opcodes", "symbols", "fixups-1")
    images = {name: image for name, image in thin_images().items() if name in names}
    rename = _with_control(bytes([1, 1, 0, 0b00000011, 0b00000111, 12]), images)
    remove = _with_control(bytes([2, 1, 1, 0b01000100, 1, 12, 0, 1]), images)
    strip = _with_control(bytes([0, 0, 1, 0b10001000, 0b1001]), {**images, **fat_files()})
    return {
        **{f"rename-{name}": data for name, data in rename.items()},
        **{f"remove-{name}": data for name, data in remove.items()},
        **{f"strip-{name}": data for name, data in strip.items() if name.startswith(("fat", "signed"))},
    }


def _fat() -> dict[str, bytes]:
    images = thin_images()
    pairs = {
        "two-thin": (images["signed-hardened"], images["arm64"]),
        "same-twice": (images["arm64"], images["arm64"]),
        "unsigned": (dylib(), images["arm64"]),
        **{name: (data, b"") for name, data in fat_files().items()},
    }
    return {name: len(one).to_bytes(4, "little") + bytes(4) + one + two for name, (one, two) in pairs.items()}


def _data() -> dict[str, bytes]:
    texts = {
        "recipe": f"R{_RECIPE}",
        "lock": f"L{_LOCK}",
        "settings": f"S{_SETTINGS}",
        "pyproject": f"P[tool.macbuild]\n{_SETTINGS}",
        "environment": f"E{_ENVIRONMENT}",
        "policy": f"A{_POLICY}",
        "recipe-unknown-key": f"R{_RECIPE}nam = 1\n",
        "recipe-nested-lists": "Rlinks = " + "[" * 400 + "]" * 400,
        "recipe-nested-tables": "R" + "a." * 5000 + "b = 1",
        "lock-of-the-future": "Lversion = 2\n",
        "settings-not-toml": "Sarch = \n",
        "policy-of-two": f'Aextends = "base.toml"\n[severity]\nsdk = "info"\n\n---\n{_POLICY}',
        "policy-extends-itself": 'Aextends = "mine.toml"\n',
    }
    return {name: text.encode() for name, text in texts.items()}


def _exports() -> dict[str, bytes]:
    names = {"_TRITONBACKEND_A": False, "_first": False, "_weak": True, "_zweak": True}
    plain = b"\x51\x70\x00\x40_weak\0\x90\x40_zweak\0\x90"
    coded = b"\x51\x40_weak\0\x70\x00\xc0\x02\x00\x60\x00\x40_zweak\0\x80\x78\xb0"
    images = {
        "weak": exporting(names, slots=["_weak", "_zweak"], weak=plain),
        "weak-coded": exporting(names, slots=["_weak", "_weak", "_zweak"], weak=coded),
        "signed": signed(exporting(names, slots=["_weak", "_zweak"], weak=plain)),
        "bound-to-itself": exporting(names, bind=b"\x10\x40_first\0\x51\x70\x00\x90"),
    }
    others = ("bind-opcodes", "fat", "fixups-1", "looping-trie", "symbols", "truncated")
    images |= {name: data for name, data in _machos().items() if name in others}
    return {
        **_with_control(bytes([0b00100001]), images),
        **{f"all-{name}": data for name, data in _with_control(bytes(1), images).items() if "weak" in name},
        **{f"kept-{name}": data for name, data in _with_control(bytes([0b01000000]), images).items() if "weak" in name},
    }


def _stub() -> dict[str, bytes]:
    head = "--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos, x86_64-macos ]\ninstall-name: '/usr/lib/a.dylib'\n"
    entry = (
        "  - targets: [ arm64-macos ]\n    symbols: [ _a, 'b$c',\n               \"_d\" ]\n    weak-symbols: [ _w ]\n"
    )
    texts = {
        "head": head,
        "exports": f"{head}current-version: 1.2\nexports:\n{entry}",
        "everything": (
            f"# comment\n{head}flags: [ x ]\nuuids:\n  - target: arm64-macos\n    value: 0\nreexported-libraries:\n"
            f"  - targets: [ x86_64-macos ]\n    libraries: [ '/b' ]\nexports:\n{entry}{entry}reexports:\n{entry}"
            "    objc-classes: [ A ]\n    objc-eh-types: [ A ]\n    objc-ivars: [ A._x ]\n"
            f"    thread-local-symbols: [ _t ]\nundefineds:\n{entry}...\n{head}...\n"
        ),
        "version-3": "--- !tapi-tbd-v3\narchs: [ x86_64 ]\n",
        "list-without-end": f"{head}exports:\n  - targets: [ arm64-macos",
        "names-that-cannot-be-written": f"{head}exports:\n  - targets: [ arm64-macos ]\n    symbols: [ 'a\tb', '' ]\n",
        "entry-without-targets": f"{head}exports:\n  - symbols: [ _a ]\n",
    }
    return {name: text.encode() for name, text in texts.items()}


def _signer() -> dict[str, bytes]:
    images = _with_control(bytes([0b01001000, 0, 0x20, 0, 0, 0, 1, 9]), thin_images())
    forced = _with_control(bytes([0b10010001, 1, 0x20, 2, 0, 0, 1, 9]), {"unsigned": signed(dylib())})
    return {**images, **{f"forced-{name}": data for name, data in forced.items()}}


def _unpacker() -> dict[str, bytes]:
    made = archives()
    tars = {f"{name}-checked": b"!\0" + data for name, data in made.items() if name.endswith(".tar")}
    tars["sound-checked.tar.gz"] = b"!\1" + made["sound.tar"]
    tars["sound-checked.tar.bz2"] = b"!\2" + made["sound.tar"]
    tars["sound-checked.tar.xz"] = b"!\3" + made["sound.tar"]
    lines = b"#a/|\na/b|hello|100644\na/c|b|120777\nu|../u|120777\nd|a/c/../b|120777\n"
    return {**made, **tars, "entries-of-a-zip": lines}


def _machos() -> dict[str, bytes]:
    return {**thin_images(), **fat_files()}


_MAKERS: Mapping[str, Callable[[], dict[str, bytes]]] = {
    "audit": _machos,
    "data": _data,
    "editor": _editor,
    "exports": _exports,
    "fat": _fat,
    "reader": _machos,
    "signer": _signer,
    "stub": _stub,
    "unpacker": _unpacker,
}
