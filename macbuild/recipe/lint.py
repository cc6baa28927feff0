"""Find lines of a recipe that state a fact which another line, or macbuild itself, already states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from macbuild.documents import Keys, load_document, place, place_of, title
from macbuild.errors import RecipeError, nearest
from macbuild.recipe.complete import Shared
from macbuild.recipe.model import LICENSES, Include, Package, PackageFacts, Recipe
from macbuild.recipe.release import BUILT_FROM, SLICES, ArchFacts, EveryRelease, Release, ReleaseFacts, references

__all__ = ["repetitions"]

_LISTS: Final = ("needs", "trees", "carries", "tools")
_FACTS: Final = ("minimum_macos", *_LISTS, "source", "archs")
_Key: TypeAlias = "tuple[str | int, ...]"
_Found: TypeAlias = "Iterator[tuple[Keys | str, str]]"
"""Problems, each with the key or the text that has it."""
_PACKAGE: Final = ("name", "licenses", "rpaths", "include", "files")


def repetitions(path: Path, recipes: Mapping[str, Recipe]) -> list[str]:
    """Return what a recipe repeats, and what its references lack, each after its file and line.

    Parameters
    ----------
    path
        The file of a recipe that can be read.
    recipes
        All recipes, by name.
    """
    recipe = load_document(path, Recipe, RecipeError)
    shared = load_document(path.parent / recipe.shared, Shared, RecipeError) if recipe.shared else Shared()
    found = [
        *_written_defaults(recipe, load_document(path, dict, RecipeError), ()),
        *_twice(msgspec.to_builtins(recipe), ()),
        *_implied(recipe),
        *_levels(recipe, shared.every_release),
        *_between_releases(recipe),
        *_between_packages(recipe),
        *_references(recipe, recipes),
        *_licenses(recipe, recipes),
        *_literals(recipe),
    ]
    places = {line: where for where, line in reversed(found)}
    return [f"{_at(path, places[line])}: {line}" for line in dict.fromkeys(line for _, line in found)]


def _at(path: Path, where: Keys | str) -> str:
    return place_of(path, where, *where.split()) if isinstance(where, str) else place(path, *where)


def _written_defaults(value: object, data: object, where: _Key) -> _Found:
    """Yield the keys that have the value that they would have anyway."""
    if isinstance(value, msgspec.Struct) and isinstance(data, dict):
        for field in msgspec.structs.fields(value):
            if field.encode_name not in data:
                continue
            inner = getattr(value, field.name)
            keys = (*where, field.encode_name)
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            if default is not msgspec.NODEFAULT and inner == default:
                yield keys, f"{title(keys)} is the default"
            else:
                yield from _written_defaults(inner, data[field.encode_name], keys)
    elif isinstance(value, list) and isinstance(data, list):
        for index, pair in enumerate(zip(value, data, strict=True)):
            yield from _written_defaults(*pair, (*where, index))
    elif isinstance(value, dict) and isinstance(data, dict):
        for key, inner in value.items():
            yield from _written_defaults(inner, data[key], (*where, key))


def _twice(data: object, where: _Key) -> _Found:
    """Yield the entries that a list has twice."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _twice(value, (*where, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            if value in data[:index]:
                yield (*where, index), f"{title((*where, index))} is listed twice"
            yield from _twice(value, (*where, index))


def _implied(recipe: Recipe) -> _Found:
    """Yield facts that follow from others: architectures, the minimum macOS and names of packages."""
    releases: list[tuple[_Key, str, EveryRelease]] = [(("every_release",), "every_release", recipe.every_release)]
    releases += [(("releases", index), _place(each), each) for index, each in enumerate(recipe.releases)]
    for keys, name, facts in releases:
        if recipe.build and facts.archs is not None and set(facts.archs) == set(SLICES):
            yield (*keys, "archs"), f"{name} archs is the default"
        if recipe.build and facts.minimum_macos == BUILT_FROM and not recipe.every_release.minimum_macos:
            yield (*keys, "minimum_macos"), f"{name} minimum_macos is the default"
    packages: list[tuple[_Key, str, PackageFacts]] = [(("every_package",), "every_package", recipe.every_package)]
    packages += [
        (("packages", index), f"packages {each.kind}", each) for index, each in enumerate(recipe.packages or [])
    ]
    for keys, name, package in packages:
        if package.name == recipe.name:
            yield (*keys, "name"), f"{name} name is the default"
        if package.licenses == LICENSES:
            yield (*keys, "licenses"), f"{name} licenses is the default"


def _levels(recipe: Recipe, shared: EveryRelease) -> _Found:
    """Yield facts of a release or an architecture that a wider table states, or both architectures."""
    for index, release in enumerate(recipe.releases):
        keys: _Key = ("releases", index)
        wider: list[tuple[str, ReleaseFacts]] = [("the shared file", shared), ("every_release", recipe.every_release)]
        yield from _stated(release, (keys, _place(release)), wider)
        wider.append((_place(release), release))
        owns = [(arch, own) for arch in SLICES if (own := release.own(arch))]
        for arch, own in owns:
            yield from _stated(own, ((*keys, arch), f"{_place(release)} {arch}"), wider)
        if len(owns) == len(SLICES):
            for key, fact in _common([own for _, own in owns], ("minimum_macos", *_LISTS)):
                problem = f"states {key} {fact!r} for both architectures: state it once, on the release"
                yield (*keys, owns[0][0], key), f"{_place(release)} {problem}"
    for index, package in enumerate(recipe.packages or []):
        for key, fact in _common([package, recipe.every_package], _PACKAGE):
            problem = f"packages {package.kind} states {key} {fact!r} again, which every_package states"
            yield ("packages", index, key), problem


def _stated(own: ReleaseFacts, at: tuple[_Key, str], wider: Sequence[tuple[str, ReleaseFacts]]) -> _Found:
    keys, name = at
    for where, facts in wider:
        for key, fact in _common([own, facts], _FACTS if isinstance(own, Release) else _FACTS[:5]):
            yield (*keys, key), f"{name} states {key} {fact!r} again, which {where} states"


def _between_releases(recipe: Recipe) -> _Found:
    """Yield facts that all of several releases state, but for their version."""
    if len(recipe.releases) > 1:
        plain = [_with_placeholders(release) for release in recipe.releases]
        for key, fact in _common(plain, _FACTS):
            yield ("releases", 0, key), f"all releases state {key} {fact!r}: state it once, in every_release"


def _with_placeholders(release: Release) -> Release:
    """Return a release with `{version}` for its version, and names for what its placeholders stand for."""

    def plain(value: object) -> object:
        if isinstance(value, str):
            value = _token(release.version).sub("{version}", value)
            for name, text in release.placeholders.items():
                value = value.replace(text, f"{{{name}}}")
            return value
        if isinstance(value, list):
            return [plain(item) for item in value]
        return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value

    table = msgspec.to_builtins(release)
    facts = {key: plain(table[key]) for key in _FACTS if key in table}
    return msgspec.convert({**table, **facts}, Release)


def _between_packages(recipe: Recipe) -> _Found:
    """Yield facts that all of several packages state."""
    if len(recipe.packages or []) > 1:
        for key, fact in _common(recipe.packages or [], _PACKAGE):
            yield ("packages", 0, key), f"all packages state {key} {fact!r}: state it once, in every_package"


def _common(tables: Sequence[msgspec.Struct], keys: Sequence[str]) -> Iterator[tuple[str, object]]:
    """Yield the facts that all of some structs state, each by its key; of a list, each entry."""
    for key in keys:
        first, *others = (getattr(table, key) for table in tables)
        if isinstance(first, list):
            facts = [entry for entry in first if all(entry in (other or []) for other in others)]
            yield from ((key, msgspec.to_builtins(fact)) for fact in facts)
        elif first and all(first == other for other in others):
            yield key, first


def _references(recipe: Recipe, recipes: Mapping[str, Recipe]) -> _Found:
    """Yield references with a version that goes without saying, and those that lack one."""
    for keys, name, texts in _lists_of_references(recipe):
        for index, text in enumerate(texts):
            for problem in _reference(text, recipes):
                yield (*keys, index), f"{name} has {problem}"


def _lists_of_references(recipe: Recipe) -> Iterator[tuple[_Key, str, list[str]]]:
    levels: list[tuple[_Key, str, ReleaseFacts | ArchFacts]] = [
        (("every_release",), "every_release", recipe.every_release)
    ]
    for index, release in enumerate(recipe.releases):
        levels.append((("releases", index), _place(release), release))
        owns = [(arch, release.own(arch)) for arch in SLICES]
        levels += [(("releases", index, arch), _place(release), own) for arch, own in owns if own]
    for keys, name, part in levels:
        for key in _LISTS:
            yield (*keys, key), f"{name} {key}", getattr(part, key)
    for name, option in (recipe.build.options if recipe.build else {}).items():
        for key in ("needs", "carries"):
            yield ("build", "options", name, key), f"the option {name} {key}", getattr(option, key)


def _reference(text: str, recipes: Mapping[str, Recipe]) -> Iterator[str]:
    for name, version in references([text]).items():
        other = recipes.get(name)
        if other is None:
            yield f"{name!r}, for which there is no recipe; {nearest(name, list(recipes))}"
        elif not version and len(other.releases) > 1:
            versions = ", ".join(release.version for release in other.releases)
            yield f"{name!r} without a version, and it has several releases: {versions}"
        elif version and len(other.releases) == 1:
            yield f"'{name}@{version}', and it has no other release: write {name!r}"


def _licenses(recipe: Recipe, recipes: Mapping[str, Recipe]) -> _Found:
    """Yield what a package includes of licences that are packed without being listed."""
    packages: list[PackageFacts | Package] = [recipe.every_package, *(recipe.packages or [])]
    for include in (include for package in packages for include in package.include):
        other = recipes.get(include.component)
        if _takes_licenses(include) and other is not None and not other.artifacts:
            yield include.source, f"the licences of {include.component} are listed, which are packed without that"


def _takes_licenses(include: Include) -> bool:
    return include.source.startswith("share/licenses/")


def _literals(recipe: Recipe) -> _Found:
    """Yield texts of sources and layouts that repeat a version or an address for which there is a placeholder."""
    layouts = {
        name: [rule if isinstance(rule, str) else f"{rule.source} {rule.to}" for rule in rules]
        for name, rules in recipe.layouts.items()
    }
    everywhere = [text for texts in layouts.values() for text in texts]
    everywhere += [text for link in recipe.links for text in (link.path, link.target)]
    for release in [recipe.every_release, *recipe.releases]:
        version = release.version if isinstance(release, Release) else ""
        candidates = list(release.source)
        for own in (release.arm64, release.x86_64) if isinstance(release, Release) else ():
            candidates += own.sources if own else []
        for candidate in candidates:
            fetch = msgspec.to_builtins(candidate.fetch)
            texts = [candidate.folder, *(text for value in fetch.values() for text in _texts(value))]
            yield from _repeated(version, "{version}", texts)
            yield from _repeated(recipe.homepage, "{homepage}", texts)
            fetched = getattr(candidate.fetch, "version", "")
            if "{" not in fetched:
                yield from _repeated(
                    fetched, "{package_version}", [candidate.folder, *layouts.get(candidate.layout, [])]
                )
        yield from _repeated(version, "{version}", everywhere)


def _repeated(word: str, placeholder: str, texts: Sequence[str]) -> _Found:
    if "." in word:
        for text in texts:
            if _token(word).search(text):
                yield text, f"{text!r} repeats {word!r}: write {placeholder}"


def _texts(value: object) -> list[str]:
    return [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]


def _token(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![0-9.]){re.escape(word)}(?![0-9]|\.[0-9])")


def _place(release: Release) -> str:
    return f"releases {release.version}"
