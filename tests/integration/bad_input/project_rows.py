"""Rows about the files of a project: recipes, locks, settings, edits."""

from __future__ import annotations

from tests.integration.bad_input.row import (
    COMMAND,
    CONFIG,
    KINDS,
    LOCK,
    LOCKS,
    RECIPE,
    RECIPES,
    SETTINGS,
    Row,
    encoded,
    nothing,
    pin,
    pinned,
    recipe,
    release,
    source,
    special,
    text,
)

RECIPE_ROWS = [
    Row("recipes", name, recipe(change), "plan alpha", RECIPES, (f"{{root}}/{RECIPE}:{line}: ", *says), hint)
    for name, change, line, says, hint in (
        ("another name than its folder", lambda data: data.update(name="beta"), 2, ("the folder is 'alpha'",), ""),
        ("a version twice", lambda data: release(data, 1).update(version="1"), 33, ("twice",), ""),
        (
            "a version that is none",
            lambda data: release(data).update(version="1.0-rc1"),
            8,
            ("releases[0].version",),
            "",
        ),
        (
            "an unknown layout",
            lambda data: source(data).update(layout="archives"),
            15,
            ("'archives'",),
            "did you mean 'archive'",
        ),
        (
            "two sources of a name",
            lambda data: release(data)["arm64"].update(sources=[source(data)] * 2),
            22,
            ("same name",),
            "",
        ),
        (
            "no sources",
            lambda data: release(data)["arm64"].update(sources=[]),
            12,
            ("releases 1.0 arm64 has no sources",),
            "[build]",
        ),
        (
            "needs without a build",
            lambda data: release(data)["arm64"].update(needs=["beta"]),
            12,
            ("needs", "no [build]"),
            "",
        ),
        (
            "carries without a build",
            lambda data: release(data)["arm64"].update(carries=["beta"]),
            12,
            ("carries", "no [build]"),
            "",
        ),
        (
            "a reference that is none",
            lambda data: release(data)["arm64"].update(carries=["beta@newest"]),
            13,
            ("carries",),
            "",
        ),
        ("no releases", lambda data: data.update(releases=[]), 6, ("releases",), ""),
        (
            "a link without a reason",
            lambda data: data.update(links=[{"path": "a", "target": "b"}]),
            7,
            ("`reason`",),
            "",
        ),
        (
            "an unknown key",
            lambda data: data.update(sumary="x"),
            6,
            ("unknown key 'sumary'",),
            "did you mean 'summary'",
        ),
        ("a wrong type", lambda data: data.update(license=3), 5, ("'license'",), ""),
        (
            "an unknown kind of source",
            lambda data: source(data)["fetch"].update(type="fil"),
            18,
            ("'fil'",),
            "did you mean 'file'",
        ),
        (
            "no minimum macOS",
            lambda data: release(data)["arm64"].pop("minimum_macos"),
            10,
            ("has no minimum_macos",),
            "",
        ),
        (
            "an exemption from a rule that does not exist",
            lambda data: data.update(audit={"exempt": [{"rule": "instal-name", "file": "*", "reason": "so"}]}),
            54,
            ("unknown rule 'instal-name'",),
            "did you mean 'install-name'",
        ),
        (
            "a link without its key",
            lambda data: data.update(links=[{"path": "a", "targt": "b", "reason": "c"}]),
            7,
            ("unknown key 'targt' in links[0]",),
            "did you mean 'target'",
        ),
    )
] + [
    Row(
        "recipes",
        "no TOML",
        text(RECIPE, "schema = 1\nname = \n"),
        "plan alpha",
        RECIPES,
        (f"{RECIPE}:2: ", "not valid TOML"),
    ),
    Row("recipes", "empty", text(RECIPE, ""), "plan alpha", RECIPES, (f"{RECIPE}:1: ", "missing required field")),
    Row("recipes", "not UTF-8", text(RECIPE, b"name = '\xff'"), "plan alpha", RECIPES, (RECIPE, "not UTF-8 at byte 8")),
    Row(
        "recipes",
        "with a byte order mark",
        encoded(RECIPE, "utf-8-sig"),
        "plan alpha",
        RECIPES,
        (RECIPE, "byte order mark"),
        "UTF-8",
    ),
    Row("recipes", "in UTF-16", encoded(RECIPE, "utf-16"), "plan alpha", RECIPES, (RECIPE, "UTF-16"), "UTF-8"),
    Row(
        "recipes",
        "a folder that does not exist",
        nothing,
        "plan --recipes none",
        COMMAND,
        ("--recipes", "is not a folder"),
        "recipe.toml",
    ),
    Row(
        "recipes",
        "a folder of a variable that does not exist",
        nothing,
        "plan",
        CONFIG,
        ("MACBUILD_RECIPES", "none is not a folder"),
        environ={"MACBUILD_RECIPES": "none"},
    ),
    Row(
        "recipes",
        "a folder of a file that does not exist",
        text(SETTINGS, "jobs = 2\nrecipes = 'none'"),
        "plan",
        CONFIG,
        (f"{SETTINGS}:2: recipes", "is not a folder"),
    ),
    Row(
        "recipes",
        "a layout that matches nothing, found by a step",
        recipe(lambda data: data["layouts"]["archive"].append({"from": "share/none", "to": "share/"})),
        "build alpha",
        RECIPES,
        (f"{RECIPE}:", "'share/none' matches nothing"),
    ),
    *(Row("recipes", kind, special(RECIPE, kind), "plan alpha", RECIPES, (RECIPE, f"is {kind}")) for kind in KINDS),
]

LOCK_ROWS = [
    Row(
        "locks",
        f"{key} is {value!r}"[:40],
        pin(key, value),
        "plan alpha",
        LOCKS,
        (f"{LOCK}:", key, "pinned[1]"),
        "macbuild lock --update",
    )
    for key, value in (
        ("file", "../x"),
        ("file", ".."),
        ("file", "."),
        ("file", ""),
        ("file", "meta.json"),
        ("size", -1),
        ("size", "1"),
        ("sha256", "0" * 63),
        ("sha256", "A" * 64),
        ("arch", "universal2"),
        ("sice", 3),
    )
] + [
    Row(
        "locks",
        "no TOML",
        text(LOCK, "version = 1\npinned = "),
        "plan alpha",
        LOCKS,
        (f"{LOCK}:2: ",),
        "macbuild lock --update",
    ),
    Row("locks", "empty", text(LOCK, ""), "plan alpha", LOCKS, (LOCK, "is empty"), "macbuild lock --update"),
    Row(
        "locks",
        "of a later version",
        text(LOCK, "\nversion = 2\n"),
        "plan alpha",
        LOCKS,
        (f"{LOCK}:2: ", "lock version 2"),
        "the macbuild that wrote it",
    ),
    Row(
        "locks",
        "a merge's conflict",
        text(LOCK, "version = 1\n<<<<<<< HEAD\n"),
        "plan alpha",
        LOCKS,
        (f"{LOCK}:2: ", "conflict"),
        "choose one side",
    ),
    Row(
        "locks",
        "a source twice",
        pinned(lambda rows: rows.append(rows[0])),
        "plan alpha",
        LOCKS,
        (f"{LOCK}:", "listed twice"),
        "keep one",
    ),
    Row(
        "locks",
        "with a byte order mark",
        encoded(LOCK, "utf-8-sig"),
        "plan alpha",
        LOCKS,
        (LOCK, "byte order mark"),
        "save it as UTF-8",
    ),
    Row("locks", "in UTF-16", encoded(LOCK, "utf-16"), "plan alpha", LOCKS, (LOCK, "UTF-16"), "save it as UTF-8"),
    Row(
        "locks",
        "a name that does not exist",
        nothing,
        "plan alpha --lock other.lock",
        LOCKS,
        ("other.lock", "there is no lock file"),
        "macbuild lock --lock other.lock",
    ),
    *(Row("locks", kind, special(LOCK, kind), "plan alpha", LOCKS, (LOCK, f"is {kind}")) for kind in KINDS),
]

SETTINGS_ROWS = (
    [
        Row(
            "settings",
            f"{line}",
            text(SETTINGS, f"dist = 'dist'\n{line}\n"),
            "plan",
            CONFIG,
            (f"{SETTINGS}:2: ", *says),
            hint,
        )
        for line, says, hint in (
            ("arch = 'arm65'", ("arch", "'arm65'"), "arm64, x86_64, universal2"),
            ("jobs = 0", ("jobs", "0"), "from 1 to"),
            ("lock = ''", ("lock", "is empty"), ""),
            ("deployment_target = 'x'", ("deployment_target", "'x'"), "14.0"),
            ("color = 'no'", ("color", "'no'"), "auto, always, never"),
            ("toolchain = 'gcc'", ("toolchain", "'gcc'"), "auto, zig, apple"),
            ("policy = 'relase'", ("policy", "'relase'"), "permissive, release, wheel"),
            ("jbos = 2", ("unknown key 'jbos'",), "did you mean 'jobs'"),
            ("jobs = 'many'", ("'jobs'",), ""),
        )
    ]
    + [
        Row("settings", f"{name}={value}"[:40], nothing, "plan", CONFIG, (name, *says), hint, {name: value})
        for name, value, says, hint in (
            ("MACBUILD_JOBS", "0", ("0",), "from 1 to"),
            ("MACBUILD_JOBS", "-1", ("-1",), ""),
            ("MACBUILD_JOBS", "9" * 5000, ("not a whole number",), ""),
            ("MACBUILD_JOBS", "1.5", ("'1.5'",), ""),
            ("MACBUILD_ARCH", "arm65", ("'arm65'",), "arm64, x86_64, universal2"),
            ("MACBUILD_OFFLINE", "maybe", ("'maybe'",), "1 or 0"),
            ("MACBUILD_COLOR", "blue", ("'blue'",), "auto, always, never"),
            ("MACBUILD_POLICY", "relase", ("'relase'",), "permissive, release, wheel"),
            ("MACBUILD_DEPLOYMENT_TARGET", "sonoma", ("'sonoma'",), "14.0"),
            ("MACOSX_DEPLOYMENT_TARGET", "14.x", ("'14.x'",), "14.0"),
            ("MACBUILD_DIST", "~nobody-of-this-name/x", ("home of a user",), ""),
            ("MACBUILD_ARHC", "arm64", ("unknown variable",), "did you mean 'MACBUILD_ARCH'"),
        )
    ]
    + [
        Row(
            "settings",
            "with a byte order mark",
            encoded(SETTINGS, "utf-8-sig"),
            "plan",
            CONFIG,
            (SETTINGS, "byte order mark"),
            "UTF-8",
        ),
        Row("settings", "in UTF-16", encoded(SETTINGS, "utf-16"), "plan", CONFIG, (SETTINGS, "UTF-16"), "UTF-8"),
        *(Row("settings", kind, special(SETTINGS, kind), "plan", CONFIG, (SETTINGS, f"is {kind}")) for kind in KINDS),
    ]
)

EDITS = """schema = 1
component = "demo"

[[edits]]
name = "wide"
file = "sizes.cc"
anchor = "size_t amount"
action = "replace"
text = "uint64_t amount"
reason = "Another type of the same width"
gone = "fixed"
"""
EDIT_ROWS = [
    Row("edits", name, spoil, "patch explain given.toml", 21, says, hint)
    for name, spoil, says, hint in (
        *((kind, special("given.toml", kind), ("given.toml", f"is {kind}"), "") for kind in KINDS[:3]),
        (
            "byte order mark",
            text("given.toml", EDITS.encode("utf-8-sig")),
            ("given.toml", "is UTF-8 with a byte order mark"),
            "save it as UTF-8",
        ),
        ("UTF-16", text("given.toml", EDITS.encode("utf-16")), ("given.toml", "is UTF-16"), "save it as UTF-8"),
        ("no TOML", text("given.toml", EDITS + "more\n"), ("given.toml:12",), ""),
        ("unknown key", text("given.toml", EDITS + 'mode = "x"\n'), ("given.toml:12", "unknown key 'mode'"), ""),
        (
            "unknown action",
            text("given.toml", EDITS.replace('"replace"', '"remove"')),
            ("given.toml:8", "remove"),
            "",
        ),
    )
]
