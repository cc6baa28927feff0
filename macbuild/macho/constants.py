"""Numbers of the Mach-O format, by the names of `<mach-o/loader.h>`, `<mach-o/fat.h>` and `<mach/machine.h>`."""

from __future__ import annotations

from enum import IntEnum, IntFlag

__all__ = [
    "DYLIB_COMMANDS",
    "FAT_MAGIC",
    "FAT_MAGIC_64",
    "LC",
    "LINKEDIT_DATA_COMMANDS",
    "LOAD_DYLIB_COMMANDS",
    "MH_MAGIC_64",
    "Cpu",
    "FileType",
    "HeaderFlag",
    "Platform",
]

MH_MAGIC_64 = 0xFEEDFACF
FAT_MAGIC = 0xCAFEBABE
FAT_MAGIC_64 = 0xCAFEBABF


class Cpu(IntEnum):
    """The two CPU types that 64-bit macOS has."""

    X86_64 = 0x01000007
    ARM64 = 0x0100000C


class FileType(IntEnum):
    """`filetype` of the Mach-O header."""

    OBJECT = 1
    EXECUTE = 2
    FVMLIB = 3
    CORE = 4
    PRELOAD = 5
    DYLIB = 6
    DYLINKER = 7
    BUNDLE = 8
    DYLIB_STUB = 9
    DSYM = 10
    KEXT_BUNDLE = 11
    FILESET = 12


class HeaderFlag(IntFlag):
    """The `flags` of the Mach-O header that macbuild reads."""

    NOUNDEFS = 0x1
    DYLDLINK = 0x4
    TWOLEVEL = 0x80
    WEAK_DEFINES = 0x8000
    BINDS_TO_WEAK = 0x10000
    NO_REEXPORTED_DYLIBS = 0x100000
    PIE = 0x200000


class LC(IntEnum):
    """Load commands that macbuild reads or writes."""

    SEGMENT = 0x1
    SYMTAB = 0x2
    DYSYMTAB = 0xB
    LOAD_DYLIB = 0xC
    ID_DYLIB = 0xD
    LOAD_WEAK_DYLIB = 0x80000018
    SEGMENT_64 = 0x19
    UUID = 0x1B
    RPATH = 0x8000001C
    CODE_SIGNATURE = 0x1D
    SEGMENT_SPLIT_INFO = 0x1E
    REEXPORT_DYLIB = 0x8000001F
    LAZY_LOAD_DYLIB = 0x20
    DYLD_INFO = 0x22
    DYLD_INFO_ONLY = 0x80000022
    LOAD_UPWARD_DYLIB = 0x80000023
    VERSION_MIN_MACOSX = 0x24
    VERSION_MIN_IPHONEOS = 0x25
    FUNCTION_STARTS = 0x26
    MAIN = 0x80000028
    DATA_IN_CODE = 0x29
    SOURCE_VERSION = 0x2A
    DYLIB_CODE_SIGN_DRS = 0x2B
    LINKER_OPTIMIZATION_HINT = 0x2E
    BUILD_VERSION = 0x32
    DYLD_EXPORTS_TRIE = 0x80000033
    DYLD_CHAINED_FIXUPS = 0x80000034
    ATOM_INFO = 0x36


LOAD_DYLIB_COMMANDS = frozenset(
    {LC.LOAD_DYLIB, LC.LOAD_WEAK_DYLIB, LC.REEXPORT_DYLIB, LC.LAZY_LOAD_DYLIB, LC.LOAD_UPWARD_DYLIB}
)
DYLIB_COMMANDS = LOAD_DYLIB_COMMANDS | {LC.ID_DYLIB}
LINKEDIT_DATA_COMMANDS = frozenset(
    {
        LC.CODE_SIGNATURE,
        LC.SEGMENT_SPLIT_INFO,
        LC.FUNCTION_STARTS,
        LC.DATA_IN_CODE,
        LC.DYLIB_CODE_SIGN_DRS,
        LC.LINKER_OPTIMIZATION_HINT,
        LC.DYLD_EXPORTS_TRIE,
        LC.DYLD_CHAINED_FIXUPS,
        LC.ATOM_INFO,
    }
)


class Platform(IntEnum):
    """`platform` of LC_BUILD_VERSION."""

    MACOS = 1
    IOS = 2
    TVOS = 3
    WATCHOS = 4
    BRIDGEOS = 5
    MACCATALYST = 6
    IOSSIMULATOR = 7
    DRIVERKIT = 10
