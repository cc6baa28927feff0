"""`codesign`: sign ad hoc, verify, display or remove the signature of Mach-O files.

Supported: -s/--sign -, -f/--force, -i/--identifier, -o/--options, --entitlements, --preserve-metadata,
--timestamp=none, --remove-signature, -v/--verify, -d/--display, --verbose, --strict, --deep, --all-architectures,
-a/--architecture. Exit codes: 1 failed, 2 usage. Source: the manual page codesign(1), and the messages that delocate
0.13 looks for. An identity or a bundle is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from macbuild.errors import MacbuildError, SignatureError, UsageError
from macbuild.macho.codesign import CodeDirectory, CodeFlag, HashType, Signature, Slot, parse_signature
from macbuild.macho.file import MachOFile, open_macho
from macbuild.macho.image import Image
from macbuild.macho.verify import verify_image

__all__ = ["main"]

USAGE = (
    "Usage: codesign -s - [-i identifier] [-f] [--entitlements file] [-o flag,...] [--preserve-metadata=list] path ..."
    "\n"
    "       codesign -v [-v] [--strict] [--deep] path ...\n"
    "       codesign -d [-v ...] path ...\n"
    "       codesign --remove-signature path ..."
)
_LONG_BY_SHORT = {
    "s": "sign",
    "i": "identifier",
    "o": "options",
    "a": "architecture",
    "f": "force",
    "d": "display",
    "v": "verbose",
}
_NEEDS_VALUE = frozenset({"sign", "identifier", "options", "architecture", "entitlements"})
_MAY_HAVE_VALUE = frozenset({"preserve-metadata", "timestamp", "verbose", "strict"})
_PLAIN = frozenset({"force", "display", "verify", "remove-signature", "deep", "all-architectures", "xml"})
_FLAGS = {
    "runtime": CodeFlag.RUNTIME,
    "library": CodeFlag.LIBRARY_VALIDATION,
    "restrict": CodeFlag.RESTRICT,
    "hard": CodeFlag.FORCE_HARD,
    "kill": CodeFlag.FORCE_KILL,
    "expires": CodeFlag.FORCE_EXPIRATION,
    "linker-signed": CodeFlag.LINKER_SIGNED,
}
_FLAG_LABELS = {flag: name for name, flag in _FLAGS.items()} | {
    CodeFlag.ADHOC: "adhoc",
    CodeFlag.HOST: "host",
    CodeFlag.ENFORCEMENT: "enforcement",
    CodeFlag.LIBRARY_VALIDATION: "library-validation",
}
_PRESERVABLE = ("identifier", "entitlements", "requirements", "flags", "runtime")


@dataclass
class CodesignRequest:
    """A parsed command line: options by long name, the number of verbose flags, files."""

    options: dict[str, str] = field(default_factory=dict)
    verbose: int = 0
    files: list[str] = field(default_factory=list)


def main(arguments: Sequence[str]) -> int:
    """Do one operation on each file; 0 if all went well, 1 if one failed, 2 for a wrong command line.

    Parameters
    ----------
    arguments
        The command line without the name of the program.
    """
    try:
        request = _parse(arguments)
        operation = _operation(request)
    except UsageError as error:
        sys.stderr.write(f"codesign: {error}\n{USAGE}\n")
        return error.exit_code
    code = 0
    for name in request.files:
        try:
            _check_exists(name)
            operation(name, request)
        except MacbuildError as error:
            sys.stderr.write(f"{name}: {error.message}\n")
            code = 1
    return code


def _parse(arguments: Sequence[str]) -> CodesignRequest:
    request = CodesignRequest()
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            _take(request, argument, name, value if equals else None, rest)
        elif argument.startswith("-") and len(argument) > 1:
            letters = argument[1:]
            while letters:
                name = _LONG_BY_SHORT.get(letters[0], letters[0])
                letters = letters[1:]
                if name in _NEEDS_VALUE:
                    _take(request, argument, name, letters or None, rest)
                    break
                _take(request, argument, name, None, rest)
        else:
            request.files.append(argument)
    return request


def _take(request: CodesignRequest, argument: str, name: str, value: str | None, rest: list[str]) -> None:
    if name in _NEEDS_VALUE:
        if value is None and not rest:
            raise UsageError(f"option requires an argument: {argument}")
        request.options[name] = rest.pop(0) if value is None else value
    elif name == "verbose":
        if value is not None and not value.isdecimal():
            raise UsageError(f"not a number: {argument}")
        request.verbose += 1 if value is None else int(value)
    elif name in _MAY_HAVE_VALUE or (name in _PLAIN and value is None):
        request.options[name] = value or ""
    else:
        raise UsageError(f"unrecognized option: {argument}")


def _operation(request: CodesignRequest) -> Callable[[str, CodesignRequest], None]:
    operations = {"sign": _sign, "verify": _verify, "display": _display, "remove-signature": _remove}
    chosen = [name for name in operations if name in request.options]
    if not chosen and request.verbose:
        chosen = ["verify"]  # -v alone means verify, once more of it means verbose
        request.verbose -= 1
    if len(chosen) != 1:
        raise UsageError("give one of --sign, --verify, --display and --remove-signature")
    if not request.files:
        raise UsageError("no path given")
    if chosen == ["sign"]:
        _check_sign_options(request.options)
    elif "architecture" in request.options and chosen == ["remove-signature"]:
        raise UsageError("--architecture is for --verify and --display")
    return operations[chosen[0]]


def _check_sign_options(options: dict[str, str]) -> None:
    if options.get("timestamp", "none") != "none":
        raise UsageError("an ad hoc signature has no timestamp: leave --timestamp out or say --timestamp=none")
    if "architecture" in options:
        raise UsageError("all architectures of a file are signed together: leave --architecture out")
    for kind in _preserved(options):
        if kind not in _PRESERVABLE:
            raise UsageError(f"unknown kind of metadata to preserve: {kind}")
    _flags(options.get("options", ""))


def _preserved(options: dict[str, str]) -> tuple[str, ...]:
    if "preserve-metadata" not in options:
        return ()
    return tuple(options["preserve-metadata"].split(",")) if options["preserve-metadata"] else _PRESERVABLE


def _flags(text: str) -> int:
    value = 0
    for name in filter(None, text.split(",")):
        if name in _FLAGS:
            value |= _FLAGS[name]
            continue
        try:
            value |= int(name, 0)
        except ValueError:
            raise UsageError(f"unknown signature flag: {name}") from None
    return value


def _check_exists(name: str) -> None:
    path = Path(name)
    if not path.exists():
        raise SignatureError("No such file or directory")
    if path.is_dir():
        raise SignatureError("is a folder; bundles are not supported, name the Mach-O files in it")


def _images(macho: MachOFile, request: CodesignRequest) -> Sequence[Image]:
    wanted = request.options.get("architecture")
    images = [image for image in macho.images if wanted in {None, image.arch}]
    if not images:
        raise SignatureError(f"has no architecture {wanted}")
    return images


def _signature(image: Image) -> Signature | None:
    place = image.signature_range
    return None if place is None else parse_signature(image.read(*place), image.where)


def _format(macho: MachOFile) -> str:
    return f"Mach-O {'universal' if macho.is_fat else 'thin'} ({' '.join(macho.archs)})"


def _sign(name: str, request: CodesignRequest) -> None:
    from macbuild.macho.sign import SignOptions, sign_file

    options = request.options
    if options["sign"] != "-":
        raise SignatureError(
            f"{options['sign']}: no identity found; only ad hoc signatures can be made here, with --sign -"
        )
    with open_macho(Path(name)) as macho:
        old = _old_signatures(macho, ignore_damage="force" in options and not _preserved(options))
        kept = _kept(old, _preserved(options))
        description = _format(macho)
    if any(not signature.main.flags & CodeFlag.LINKER_SIGNED for signature in old) and "force" not in options:
        raise SignatureError("is already signed")
    if old and "force" in options:
        sys.stderr.write(f"{name}: replacing existing signature\n")
    entitlements = kept.entitlements
    if "entitlements" in options:
        entitlements = _read(options["entitlements"])
    sign_file(
        Path(name),
        SignOptions(
            identifier=options.get("identifier", kept.identifier),
            flags=_flags(options["options"]) if "options" in options else kept.flags,
            entitlements=entitlements,
            requirements=kept.requirements,
            preserve=False,
        ),
    )
    if request.verbose:
        with open_macho(Path(name)) as macho:
            identifier = verify_image(macho.images[0]).identifier
        sys.stderr.write(f"{name}: signed {description} [{identifier}]\n")


@dataclass(frozen=True)
class _Kept:
    """The parts of the old signature that the new one keeps."""

    identifier: str | None = None
    flags: int = 0
    entitlements: bytes | None = None
    requirements: bytes | None = None


def _old_signatures(macho: MachOFile, *, ignore_damage: bool) -> list[Signature]:
    try:
        return [signature for image in macho.images if (signature := _signature(image)) is not None]
    except SignatureError:
        if ignore_damage:
            return []
        raise


def _kept(old: Sequence[Signature], kinds: Sequence[str]) -> _Kept:
    found = {_kept_of(signature, kinds) for signature in old}
    if len(found) > 1:
        raise SignatureError("its slices have different metadata to preserve; split it with lipo -thin first")
    return found.pop() if found else _Kept()


def _kept_of(signature: Signature, kinds: Sequence[str]) -> _Kept:
    requirements = signature.blob(Slot.REQUIREMENTS)
    mask = ~(CodeFlag.ADHOC | CodeFlag.LINKER_SIGNED) if "flags" in kinds else 0
    if "runtime" in kinds:
        mask |= CodeFlag.RUNTIME
    return _Kept(
        identifier=signature.main.identifier if "identifier" in kinds else None,
        flags=signature.main.flags & mask,
        entitlements=signature.entitlements if "entitlements" in kinds else None,
        requirements=requirements.data if requirements is not None and "requirements" in kinds else None,
    )


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise SignatureError(f"cannot read entitlement data: {name}: {error.strerror}") from error


def _verify(name: str, request: CodesignRequest) -> None:
    with open_macho(Path(name)) as macho:
        for image in _images(macho, request):
            if image.signature_range is None:
                raise SignatureError(f"code object is not signed at all\nIn architecture: {image.arch}")
            try:
                verify_image(image)
            except SignatureError as error:
                raise SignatureError(
                    "invalid signature (code or signature have been modified)\n"
                    f"In architecture: {image.arch}\nfirst problem: {error.message}"
                ) from error
    if request.verbose:
        sys.stderr.write(f"{name}: valid on disk\n{name}: satisfies its Designated Requirement\n")


def _remove(name: str, request: CodesignRequest) -> None:
    del request
    from macbuild.macho.edit import Edits, edit_file

    edit_file(Path(name).resolve(), Edits(strip_signature=True))


def _display(name: str, request: CodesignRequest) -> None:
    with open_macho(Path(name)) as macho:
        for image in _images(macho, request):
            signature = _signature(image)
            if signature is None:
                raise SignatureError("code object is not signed at all")
            lines = [f"Executable={Path(name).resolve()}"]
            if request.verbose:
                lines += _facts(macho, image, signature, request.verbose)
            sys.stderr.writelines(f"{line}\n" for line in lines)
            if "entitlements" in request.options and signature.entitlements is not None:
                sys.stdout.write(signature.entitlements.decode("utf-8", "surrogateescape"))


def _facts(macho: MachOFile, image: Image, signature: Signature, verbose: int) -> Iterator[str]:
    best = signature.best
    yield f"Identifier={best.identifier}"
    yield f"Format={_format(macho)}"
    names = ",".join(label for flag, label in sorted(_FLAG_LABELS.items()) if best.flags & flag) or "none"
    yield (
        f"CodeDirectory v={best.version:x} size={len(best.blob.data)} flags={best.flags:#x}({names})"
        f" hashes={best.code_count}+{best.special_count} location=embedded"
    )
    if verbose >= 3:
        yield from _hash_facts(signature, best, verbose)
    yield f"Signature size={len(signature.cms)}" if signature.cms else "Signature=adhoc"
    yield f"Info.plist={'not bound' if Slot.INFO_PLIST not in best.special_slots else 'bound'}"
    yield f"TeamIdentifier={best.team_id or 'not set'}"
    if best.flags & CodeFlag.RUNTIME:
        runtime = best.runtime
        yield f"Runtime Version={runtime >> 16}.{runtime >> 8 & 0xFF}.{runtime & 0xFF}"
    yield f"Sealed Resources={'none' if Slot.RESOURCES not in best.special_slots else 'version=2'}"
    requirements = signature.blob(Slot.REQUIREMENTS)
    if requirements is None:
        yield "Internal requirements=none"
    else:
        count = int.from_bytes(requirements.data[8:12], "big")
        yield f"Internal requirements count={count} size={len(requirements.data)}"
    if macho.is_fat:
        yield f"Architecture={image.arch}"


def _hash_facts(signature: Signature, best: CodeDirectory, verbose: int) -> Iterator[str]:
    labels = {HashType.SHA1: "sha1", HashType.SHA256: "sha256", HashType.SHA256_TRUNCATED: "sha256t"}
    labels[HashType.SHA384] = "sha384"
    yield f"Hash type={labels[best.hash_type]} size={best.hash_type.size}"
    for directory in signature.code_directories:
        full = directory.hash_type.digest(directory.blob.data).hex()
        yield f"CandidateCDHash {labels[directory.hash_type]}={directory.cdhash}"
        yield f"CandidateCDHashFull {labels[directory.hash_type]}={full}"
    yield "Hash choices=" + ",".join(labels[directory.hash_type] for directory in signature.code_directories)
    yield f"CMSDigest={best.hash_type.digest(best.blob.data).hex()}"
    yield f"CMSDigestType={int(best.hash_type)}"
    if verbose >= 4:
        yield f"Executable Segment base={best.exec_base}"
        yield f"Executable Segment limit={best.exec_limit}"
        yield f"Executable Segment flags={best.exec_flags:#x}"
        yield f"Page size={best.page_size}"
    yield f"CDHash={best.cdhash}"
