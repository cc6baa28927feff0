from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from macbuild.errors import ConfigError, UsageError
from macbuild.target import (
    Host,
    Target,
    detect_host,
    format_version,
    pack_version,
    parse_arch,
    parse_deployment,
    parse_version,
)


@pytest.mark.parametrize("version", ["99", "16.0", "25.4", "10.3"])
def test_a_macos_that_does_not_exist_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no macOS {version}"):
        parse_deployment(version)


def test_versions_are_packed_and_formatted() -> None:
    for text in ("11.0", "10.13.6", "255.255.255"):
        assert format_version(pack_version(text)) == text
    assert pack_version("14") == 14 << 16


@pytest.mark.parametrize("text", ["", "x", "1.2.3.4", "65536", "1.256", "1.", "-1", "1.2 "])
def test_invalid_versions_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        pack_version(text)


def test_trailing_zeros_are_ignored() -> None:
    assert parse_version("14") == parse_version("14.0.0") < parse_version("14.0.1") < parse_version("100")
    assert parse_version("0.0") == (0,)


def test_architectures_have_aliases() -> None:
    assert [parse_arch(text) for text in ("aarch64", "AMD64", "universal")] == ["arm64", "x86_64", "universal2"]
    with pytest.raises(UsageError) as caught:
        parse_arch("ppc")
    assert caught.value.hint == "choose from arm64, x86_64, universal2"


def test_deployment_targets_are_parsed_and_checked() -> None:
    assert [parse_deployment(text) for text in ("14", "10.9", "10.13.6")] == ["14.0", "10.9", "10.13.6"]
    for text in ("", "9.0", "sonoma", "14.", "1400"):
        with pytest.raises(ConfigError):
            parse_deployment(text)


def test_a_target_has_a_name_and_slices() -> None:
    assert str(Target("arm64", "14.0")) == "macos-arm64-14.0"
    assert Target("universal2", "11.0").slices == ("x86_64", "arm64")


def test_default_is_the_macs_own_architecture_else_arm64() -> None:
    assert Host("Darwin", "x86_64", rosetta=False).default_arch == "x86_64"
    assert Host("Darwin", "arm64", rosetta=False).default_arch == "arm64"
    assert Host("Linux", "x86_64", rosetta=False).default_arch == "arm64"


@pytest.mark.parametrize(
    ("answer", "rosetta", "arch"), [("1\n", True, "arm64"), ("0\n", False, "x86_64"), ("", False, "x86_64")]
)
def test_under_rosetta_the_hardware_counts(
    monkeypatch: pytest.MonkeyPatch, answer: str, arch: str, *, rosetta: bool
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, answer, ""))
    host = detect_host()
    assert (host.rosetta, host.default_arch) == (rosetta, arch)
