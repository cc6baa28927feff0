"""Rows about command lines, and about what is outside of a project: files, archives, servers, disks, locales."""

from __future__ import annotations

from tests.integration.bad_input.row import (
    ARCHIVE,
    COMMAND,
    CONFIG,
    KINDS,
    PLAN,
    RECIPE,
    RECIPES,
    SETTINGS,
    Row,
    archive,
    built,
    nobody,
    nothing,
    recipe,
    served,
    special,
    text,
    whole,
)
from tests.support.sample import tarball

COMMAND_ROWS = [
    Row("command lines", command, nothing, command, code, says, hint)
    for command, code, says, hint in (
        ("buidl", COMMAND, ("buidl", "did you mean 'build'"), "--help"),
        ("all --jbos 3", COMMAND, ("--jbos",), "--help"),
        ("all --jobs many", COMMAND, ("--jobs",), "--help"),
        ("all --jobs 0", COMMAND, ("--jobs", "0"), "from 1 to"),
        ("all --dist=", COMMAND, ("--dist", "is empty"), ""),
        ("all --arch ppc", COMMAND, ("--arch", "'ppc'"), "arm64, x86_64, universal2"),
        ("all --toolchain gcc", COMMAND, ("--toolchain", "'gcc'"), "auto, zig, apple"),
        ("all --color blue", COMMAND, ("--color", "'blue'"), "auto, always, never"),
        ("all --policy relase", COMMAND, ("--policy", "'relase'"), "permissive, release, wheel"),
        ("audit dist --policy relase", COMMAND, ("--policy", "'relase'"), "permissive, release, wheel"),
        ("all --with metics", COMMAND, ("--with", "'metics'"), "did you mean 'metrics'"),
        ("build", COMMAND, ("missing argument",), "--help"),
        ("build alpha@", COMMAND, ("'alpha@'",), "libtorch@2.2.2"),
        ("build alpha@7", PLAN, ("alpha", "7"), "1.0"),
        ("graph --format svg", COMMAND, ("'svg'",), "dot, mermaid"),
        *(
            (f"{verb} alhpa", PLAN, ("'alhpa'",), "did you mean 'alpha'")
            for verb in ("build", "plan", "lock", "test", "shell", "recipes show")
        ),
        ("plan --source alhpa=.", PLAN, ("'alhpa'",), "did you mean 'alpha'"),
        ("macho thin archives ppc -o x", COMMAND, ("ARCH", "'ppc'"), "arm64, arm64e, x86_64"),
        ("macho edit archives --arch ppc --id x", COMMAND, ("--arch", "'ppc'"), "arm64, arm64e, x86_64"),
        ("audit none", COMMAND, ("none", "there is no such file"), ""),
        ("audit archives --provider none", COMMAND, ("none", "there is no such file"), ""),
        ("verify none", COMMAND, ("none", "is not a folder"), "--dist"),
        *(
            (f"macho {verb}", COMMAND, ("none", "there is no such file"), "")
            for verb in (
                "show none",
                "verify none",
                "sign none",
                "edit none --id x",
                "thin none arm64 -o x",
                "merge none -o x",
            )
        ),
    )
]

FILE_ROWS = (
    [
        Row("paths", f"{command} with {kind}", special("given", kind), command, COMMAND, ("given", f"is {kind}"))
        for command, kinds in (
            *(
                (f"macho {verb}", KINDS)
                for verb in (
                    "show given",
                    "verify given",
                    "sign given",
                    "edit given --id x",
                    "thin given arm64 -o x",
                    "merge given -o x",
                )
            ),
            ("audit given", KINDS[:3]),
            ("audit archives --provider given", KINDS[:3]),
        )
        for kind in kinds
    ]
    + [
        Row(
            "paths",
            f"verify with {kind}",
            special("given", kind),
            "verify given",
            COMMAND,
            ("given", "is not a folder"),
            "--dist",
        )
        for kind in KINDS[:3]
    ]
    + [
        Row(
            "paths", f"--policy {kind}", special("given", kind), "all --policy ./given", CONFIG, ("given", f"is {kind}")
        )
        for kind in KINDS
    ]
)

ARCHIVE_ROWS = (
    [
        Row("archives", name, archive(content), "build alpha", 10, (ARCHIVE.split("/")[1], *says))
        for name, content, says in (
            ("empty", b"", ()),
            ("cut off", whole()[:200], ()),
            ("text", b"<html>not found</html>", ()),
            ("a way out", tarball({"../outside": b"x"}), ("../outside",)),
            ("a link outside", tarball({"lib/x": "../../outside"}), ("lib/x",)),
        )
    ]
    + [
        Row(
            "archives",
            kind,
            special(ARCHIVE, kind),
            "build alpha",
            7,
            (ARCHIVE.split("/")[1], "neither a file nor a folder"),
        )
        for kind in KINDS[:3]
    ]
    + [
        Row(
            "archives",
            "missing",
            lambda sample: (sample.root / ARCHIVE).unlink(),
            "build alpha",
            8,
            (ARCHIVE.split("/")[1],),
        ),
    ]
)


SERVER_ROWS = [
    Row("servers", name, spoil, "build alpha", code, says, hint)
    for name, spoil, code, says, hint in (
        ("not found", served(404), 8, ("127.0.0.1", "404 Not Found"), "check the address"),
        ("gone", served(410), 8, ("127.0.0.1", "410 Gone"), "check the address"),
        ("forbidden", served(403), 8, ("127.0.0.1", "403 Forbidden"), "check the address"),
        ("other bytes", served(whole()[:-1] + b"x"), 9, ("127.0.0.1", "sha256"), "macbuild lock --update alpha"),
        ("fewer bytes", served(whole()[:-9]), 9, ("127.0.0.1", "bytes"), "macbuild lock --update alpha"),
        ("more bytes", served(whole() + b"x"), 9, ("127.0.0.1", "bytes"), "macbuild lock --update alpha"),
        ("a page in its place", served(b"<html>"), 9, ("127.0.0.1", "6 bytes"), "macbuild lock --update alpha"),
        ("nobody listens", nobody, 8, ("127.0.0.1", "connection refused"), "check the address"),
    )
] + [
    Row("servers", "offline", nobody, "build alpha --offline", 8, ("offline", "127.0.0.1"), "without --offline"),
]

# No file may grow in a program that begins like this, which ends writing as a full disk does.
FULL = ("bash", "-c", 'ulimit -f 0; exec "$@"', "-")
DISK_ROWS = [
    Row("disks", "full", nothing, "build alpha", 17, ("no space left",), "MACBUILD_CACHE_DIR", start=FULL),
    Row("disks", "full, no place for temporary files", nothing, "lock", 22, ("temporary files: ",), start=FULL),
    Row("disks", "dist is a file", text("dist", "x"), "build alpha", 22, ("dist",), "--dist"),
    Row(
        "disks",
        "the store is a file",
        text("given", "x"),
        "build alpha --cache-dir given",
        16,
        ("given",),
        "MACBUILD_CACHE_DIR",
    ),
    Row(
        "disks",
        "a foreign store to be removed",
        special("given", "a folder"),
        "cache clean --cache-dir given",
        16,
        ("given", "not a cache"),
        "yourself",
    ),
]

POSIX = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LOCALE_ROWS = [
    Row("locales", name, spoil, command, code, says, environ=POSIX)
    for name, spoil, command, code, says in (
        (
            "a recipe with other letters",
            recipe(lambda data: data.update({"naïve": "ß"})),
            "plan alpha",
            RECIPES,
            (f"{RECIPE}:", "unknown key"),
        ),
        ("a component with other letters", nothing, "plan älpha", PLAN, ("there is no recipe",)),
        ("a file with other letters", nothing, "audit dänisch", COMMAND, ("there is no such file",)),
        ("a setting with other letters", text(SETTINGS, "color = 'grün'"), "plan", CONFIG, (f"{SETTINGS}:1: color",)),
    )
]

FOLDER_ROWS = [
    Row(
        "project folders",
        repr(folder),
        built,
        "build beta",
        COMMAND,
        ("in its path", repr(folder)[1:-1]),
        "move the project",
        folder=folder,
    )
    for folder in ("a\nb", "a\\b")
] + [
    Row(
        "project folders",
        f"store {folder!r}",
        built,
        f"build beta --cache-dir {folder}",
        COMMAND,
        ("in its path", folder),
        "MACBUILD_CACHE_DIR",
    )
    for folder in ("c:d", "c;d", 'c"d')
]
