from __future__ import annotations

import ast
import json
from pathlib import Path

import jsonschema
import pytest

import macbuild.audit.policy as module
from macbuild.audit import Severity, load_policy
from macbuild.audit.catalogue import RULES
from macbuild.audit.policy import BUILT_IN, NameSet, policy_schema
from macbuild.audit.system import find_system_library
from macbuild.data import parse_toml
from macbuild.errors import ConfigError

FOLDER = Path(module.__file__).parent


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_policies_have_a_severity_for_every_rule(name: str) -> None:
    policy = load_policy(name)
    assert policy.name == name
    assert set(policy.severity) == set(RULES)


def test_code_and_catalogue_have_the_same_rules() -> None:
    named = {
        node.value
        for path in [FOLDER / "run.py", *(FOLDER / "rules").glob("*.py")]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in RULES
    }
    assert named == set(RULES)


def test_release_is_stricter_than_wheel_and_permissive() -> None:
    release, wheel, permissive = (load_policy(name) for name in BUILT_IN)
    for rule in RULES:
        if Severity.ERROR in {wheel.level(rule), permissive.level(rule)}:
            assert release.level(rule) is Severity.ERROR
    assert release.level("unsigned") is Severity.ERROR
    assert permissive.level("unsigned") is Severity.WARNING
    assert permissive.level("unsigned-arm64") is permissive.level("duplicate-rpath") is Severity.ERROR


def test_the_shipped_schema_is_current_and_accepts_built_in_policies() -> None:
    shipped = json.loads((FOLDER / "policy.schema.json").read_text())
    assert shipped == json.loads(json.dumps(policy_schema()))
    for name in BUILT_IN:
        text = (FOLDER / "policies" / f"{name}.toml").read_text()
        jsonschema.validate(parse_toml(text, name, ConfigError), shipped)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "x", "severity": {"duplicate-rpaths": "error"}}, shipped)


def test_a_file_overrides_only_the_rules_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(
        'extends = "wheel"\nseverity.sdk = "off"\nseverity.two-level = "info"\nparameters.header_room = 8\n'
    )
    (tmp_path / "mine.toml").write_text(
        'extends = "base.toml"\nseverity.two-level = "warning"\n'
        '[[exemptions]]\nrule = "unsigned"\nfile = "lib/*"\nreason = "signed later"\n'
    )
    policy = load_policy(str(tmp_path / "mine.toml"))
    assert policy.name == "mine"
    assert policy.level("sdk") is None
    assert policy.level("two-level") is Severity.WARNING
    assert policy.level("duplicate-rpath") is Severity.ERROR
    assert policy.parameters.header_room == 8
    assert policy.parameters.install_name_prefixes == ["/DLC/"]
    assert policy.exemptions[0].reason == "signed later"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('extends = "release"\nseverities = {}', "unknown key 'severities'", "severity"),
        ('extends = "release"\nparameters.header_rom = 3', "unknown key 'header_rom' in parameters", "header_room"),
        (
            'extends = "release"\nseverity.duplicate-rpaths = "off"',
            "unknown rule 'duplicate-rpaths'",
            "duplicate-rpath",
        ),
        ('extends = "release"\nseverity.sdk = "fatal"', "fatal", ""),
        ('extends = "release"\nparameters.header_room = -1', "header_room", ""),
        ('extends = "release"\n[[exemptions]]\nrule = "sd"\nfile = "*"\nreason = "x"', "unknown rule 'sd'", "sdk"),
        ('extends = "release"\n[[exemptions]]\nrule = "sdk"\nfile = "*"', "reason", ""),
        ('extends = "relase"', "no policy 'relase'", "release"),
        ("extends = 3", "'extends' is not a name", ""),
        ('name = "x"\nsummary = "y"\nseverity = {}\nextends = "self.toml"', "without end", ""),
        ("name = ", "not valid TOML", ""),
    ],
)
def test_a_bad_file_is_an_error_with_the_key_and_a_suggestion(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    path = tmp_path / "self.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_policy(str(path))
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_a_policy_without_a_base_needs_every_severity(tmp_path: Path) -> None:
    text = (FOLDER / "policies" / "release.toml").read_text().replace('sdk = "error"\n', "")
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="no severity for sdk"):
        load_policy(str(path))


def test_an_unknown_policy_names_all_that_are_built_in() -> None:
    with pytest.raises(ConfigError) as caught:
        load_policy("whel")
    assert all(name in (caught.value.hint or "") for name in BUILT_IN)


def test_name_sets_match_as_globs_do() -> None:
    names = frozenset({b"_exact", b"_exactly", b"_TRITONBACKEND_Init", b"_a_middle_z", b"_x1", b"_x2", b"_x?"})
    assert NameSet(["_exact"]).select(names) == {b"_exact"}
    assert NameSet(["_TRITONBACKEND_*"]).select(names) == {b"_TRITONBACKEND_Init"}
    assert NameSet(["_a_*_z", "_x[12]"]).select(names) == {b"_a_middle_z", b"_x1", b"_x2"}
    assert NameSet(["*"]).select(names) == names
    assert NameSet([]).select(names) == frozenset()
    assert b"_x?" in NameSet(["_x?"])


def test_the_allow_list_knows_both_forms_of_framework_paths() -> None:
    versioned = find_system_library("/System/Library/Frameworks/Foundation.framework/Versions/C/Foundation")
    assert versioned is not None
    assert versioned.greatest == 300 << 16
    assert find_system_library("/System/Library/Frameworks/Foundation.framework/Foundation") is versioned
    assert find_system_library("/usr/lib/swift/libswiftCore.dylib") is not None
    graph = find_system_library(
        "/System/Library/Frameworks/MetalPerformanceShadersGraph.framework/Versions/A/MetalPerformanceShadersGraph"
    )
    assert graph is not None
    assert graph.first == 11 << 16
    for name in (
        "/usr/lib/libcrypto.dylib",
        "/System/Library/PrivateFrameworks/X.framework/X",
        "/usr/lib/libpython3.dylib",
    ):
        assert find_system_library(name) is None
