"""Fuzz the audit of a tree with one hostile Mach-O file among valid ones."""

from __future__ import annotations

import contextlib
import json
from functools import cache

from macbuild.audit import ExportRule, Policy, audit_path, audit_tree, load_policy
from macbuild.errors import MacbuildError
from tests.fuzz.common import scratch
from tests.support import machobytes

_EXPORTS = {"*.so": ExportRule(allow=["_TRITONBACKEND_*"], require=["_TRITONBACKEND_A*"])}


def check(data: bytes) -> None:
    """Audit the tree and the file alone, and write the reports as JSON."""
    with scratch() as folder:
        library = folder / "tree" / "lib"
        library.mkdir(parents=True)
        (library / "libgood.dylib").write_bytes(_good())
        (library / "libx.dylib").symlink_to("libhostile.so")
        hostile = library / "libhostile.so"
        hostile.write_bytes(data)
        report = audit_tree(library.parent, _policy(), minimum_macos="11.0", exports=_EXPORTS)
        json.dumps(report.to_json(), ensure_ascii=False).encode()
        assert report.files in {1, 2}
        with contextlib.suppress(MacbuildError):
            audit_path(hostile, _policy(), verify_signatures=False)


@cache
def _good() -> bytes:
    return machobytes.dylib(
        "x86_64", id="@rpath/libgood.dylib", dylibs=["@rpath/libx.dylib"], rpaths=["@loader_path"], signed=True
    )


@cache
def _policy() -> Policy:
    return load_policy("release")
