"""Define sources as recipes write them: where bytes come from, before they are pinned."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from macbuild.data import PLACEHOLDER
from macbuild.source.fetch.addresses import redact

__all__ = [
    "DebianSource",
    "FileSource",
    "GitSource",
    "NpmSource",
    "SdistSource",
    "Source",
    "UrlSource",
    "WheelSource",
]

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.!+_-]*")
_PYTHON = re.compile(r"3\.[0-9]{1,2}")
_TAG = re.compile(r"[a-z0-9_]+")
_DEBIAN_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_DEBIAN_FILE = re.compile(r"[a-z0-9][A-Za-z0-9.+~_-]*")
_NPM_PACKAGE = re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*")
_NPM_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?")
_GIT_URL = re.compile(r"(?:https?|ssh|git|file)://\S+|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:\S+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REF = re.compile(r"(?![0-9a-f]{40}$)[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}")


def _must(pattern: re.Pattern[str], key: str, value: str, example: str) -> None:
    """Refuse a value of another form, unless a placeholder in it is still to be replaced: then it is checked again."""
    if not pattern.fullmatch(value) and not PLACEHOLDER.search(value):
        raise ValueError(f"`{key}` is {value!r}, which does not have the form of {example!r}")


class _Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    pass


class UrlSource(_Base, frozen=True, tag="url"):
    """A file on web servers."""

    urls: Annotated[
        list[str],
        Meta(description="its addresses (http or https) in order of preference: all must give the same bytes"),
    ]
    file: Annotated[str | None, Meta(description="its name; the last part of the first address if absent")] = None

    def __post_init__(self) -> None:
        """Check the values, so that an error names the recipe's key."""
        if not self.urls:
            raise ValueError("`urls` is empty")
        for url in self.urls:
            if not re.fullmatch(r"https?://[^\s/]+/\S*", url) and not PLACEHOLDER.match(url):
                raise ValueError(f"`urls` has {redact(url)!r}, which is not an http or https address of a file")
        if self.file is not None:
            _must(_PLAIN, "file", self.file, "name-1.0.tar.gz")

    def describe(self) -> str:
        """Return one line for a person to read."""
        return redact(self.urls[0])

    def request(self) -> str:
        """Return one line that changes when the source requests something else."""
        return " ".join(["url", *([f"file={self.file}"] if self.file else []), *map(redact, self.urls)])


class WheelSource(_Base, frozen=True, tag="wheel"):
    """A wheel from the Python package index that the user configured for pip."""

    package: Annotated[str, Meta(description="its name in the index")]
    version: Annotated[str, Meta(description="exact version")]
    platform: Annotated[
        str,
        Meta(description="platform tag, such as `macosx_14_0_arm64`; pip also takes wheels for older systems of it"),
    ]
    python: Annotated[str, Meta(description="version of Python that the wheel is for")] = "3.12"
    implementation: Annotated[str, Meta(description="interpreter tag")] = "cp"
    abi: Annotated[str | None, Meta(description="ABI tag, if pip must not choose it")] = None

    def __post_init__(self) -> None:
        """Check the values: they become arguments of pip."""
        _must(_PACKAGE, "package", self.package, "torch")
        _must(_VERSION, "version", self.version, "2.13.0")
        _must(_TAG, "platform", self.platform, "macosx_14_0_arm64")
        _must(_PYTHON, "python", self.python, "3.12")
        _must(_TAG, "implementation", self.implementation, "cp")
        if self.abi is not None:
            _must(_TAG, "abi", self.abi, "cp312")

    def describe(self) -> str:
        """Return one line for a person to read."""
        return f"wheel {self.package} {self.version} for {self.platform} from the Python package index"

    def request(self) -> str:
        """Return one line that changes when the source requests something else."""
        tags = f"{self.implementation}{self.python}-{self.abi or 'any'}-{self.platform}"
        return f"wheel {self.package}=={self.version} {tags}"


class SdistSource(_Base, frozen=True, tag="sdist"):
    """The source distribution of a Python package, from the package index that the user configured for pip.

    It is downloaded as a file; none of its code runs.
    """

    package: Annotated[str, Meta(description="its name in the index")]
    version: Annotated[str, Meta(description="exact version")]

    def __post_init__(self) -> None:
        """Check the values: they become arguments of pip."""
        _must(_PACKAGE, "package", self.package, "grpcio")
        _must(_VERSION, "version", self.version, "1.81.1")

    def describe(self) -> str:
        """Return one line for a person to read."""
        return f"sdist {self.package} {self.version} from the Python package index"

    def request(self) -> str:
        """Return one line that changes when the source requests something else."""
        return f"sdist {self.package}=={self.version}"


class DebianSource(_Base, frozen=True, tag="debian"):
    """One file of a Debian source package, from the archives that the machine's apt is configured with.

    Any version of the package that has the file serves: revisions share the upstream archive, and the pin decides.
    """

    package: Annotated[str, Meta(description="name of the source package")]
    file: Annotated[str, Meta(description="which of its files, usually the upstream archive")]

    def __post_init__(self) -> None:
        """Check the values: they become arguments of apt-get."""
        _must(_DEBIAN_PACKAGE, "package", self.package, "libevent")
        _must(_DEBIAN_FILE, "file", self.file, "libevent_2.1.12-stable.orig.tar.gz")
        if not self.file.startswith(f"{self.package}_"):
            raise ValueError(f"`file` is {self.file!r}; names of files of this package start with '{self.package}_'")

    def describe(self) -> str:
        """Return one line for a person to read."""
        return f"{self.file} of the Debian source package {self.package}"

    def request(self) -> str:
        """Return one line that changes when the source requests something else."""
        return f"debian {self.package} {self.file}"


class NpmSource(_Base, frozen=True, tag="npm"):
    """A package from the npm registry that the user configured."""

    package: Annotated[str, Meta(description="its name in the registry")]
    version: Annotated[str, Meta(description="exact version")]

    def __post_init__(self) -> None:
        """Check the values: they become arguments of npm."""
        _must(_NPM_PACKAGE, "package", self.package, "@scope/name")
        _must(_NPM_VERSION, "version", self.version, "1.2.3")

    def describe(self) -> str:
        """Return one line for a person to read."""
        return f"npm package {self.package} {self.version}"

    def request(self) -> str:
        """Return one line that changes when the source requests something else."""
        return f"npm {self.package}@{self.version}"


class FileSource(_Base, frozen=True, tag="file"):
    """A local file, or a folder that becomes a tar archive; builds use it as it is now, whatever the lock has."""

    path: Annotated[str, Meta(description="path relative to the folder of the recipe")]

    def __post_init__(self) -> None:
        """Check that there is a path."""
        if not self.path or "\0" in self.path:
            raise ValueError("`path` is empty or has a NUL character")

    def describe(self) -> str:
        """Return one line for a person to read."""
        return f"local {self.path}"

    def request(self) -> str:
        """Return one line that changes when the source requests something else."""
        return f"file {self.path}"


class GitSource(_Base, frozen=True, tag="git"):
    """The tree of one commit of a git repository; submodules are empty folders."""

    url: Annotated[str, Meta(description="address of the repository: https, ssh, git, file or `user@host:path`")]
    commit: Annotated[str | None, Meta(description="full id of the commit, 40 hexadecimal digits")] = None
    ref: Annotated[
        str | None,
        Meta(
            description="instead of `commit`, a branch or a tag, whose commit the lock pins; `refs/heads/x` or "
            "`refs/tags/x` if both exist",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Check the values: they become arguments of git."""
        if not _GIT_URL.fullmatch(self.url) and not PLACEHOLDER.search(self.url):
            raise ValueError(f"`url` is {redact(self.url)!r}, which is not an address of a git repository")
        if (self.commit is None) == (self.ref is None):
            problem = "both `commit` and `ref`" if self.ref else "neither `commit` nor `ref`"
            raise ValueError(f"there is {problem}; give exactly one of the two")
        if self.commit is not None:
            _must(_COMMIT, "commit", self.commit, "40 hexadecimal digits")
        if self.ref is not None:
            _must(_REF, "ref", self.ref, "r26.09")

    def describe(self) -> str:
        """Return one line for a person to read."""
        return f"git {redact(self.url)} at {self.commit[:12] if self.commit else self.ref}"

    def request(self) -> str:
        """Return one line that changes when the source requests something else."""
        return f"git {redact(self.url)} {self.commit or f'ref={self.ref}'}"


Source: TypeAlias = UrlSource | WheelSource | SdistSource | DebianSource | NpmSource | FileSource | GitSource
