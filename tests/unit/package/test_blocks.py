from __future__ import annotations

import gzip
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from macbuild.errors import IntegrityError
from macbuild.package.blocks import HEAD, BlockCache, GzipSegment
from macbuild.package.manifest import FileRecord, record_tree
from macbuild.package.tarball import LARGE, block_cache, pack, verify_tarball

TOP = "x-1.0-macos-arm64"


def make_tree(tree: Path) -> Path:
    (tree / "lib").mkdir(parents=True)
    noise = random.Random(1).randbytes(200_000)
    (tree / "lib/a.dylib").write_bytes(noise + bytes(LARGE))
    (tree / "lib/b.dylib").write_bytes(bytes(LARGE - 1) + b"b")
    (tree / "lib/b.h").write_bytes(b"int b;\n")
    (tree / "lib/small.so").write_bytes(noise)
    return tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "tree")


@pytest.fixture
def cache(tmp_path: Path) -> BlockCache:
    return block_cache(tmp_path / "blocks")


def records(tree: Path) -> dict[str, FileRecord]:
    return {record.path: record for record in record_tree(tree, 1)}


def make(tree: Path, output: Path, cache: BlockCache | None) -> tuple[bytes, list[bool]]:
    """Pack, verify and keep; return the bytes, and for each segment whether it came from the cache."""
    expected = records(tree)
    segments = pack(tree, output, top=TOP, epoch=0, jobs=2, records=expected, cache=cache)
    verify_tarball(output, expected, top=TOP, segments=segments)
    if cache is not None:
        cache.keep(output, segments)
    return output.read_bytes(), [segment.block is not None for segment in segments]


def test_bytes_do_not_depend_on_the_cache(tree: Path, cache: BlockCache, tmp_path: Path) -> None:
    plain, none = make(tree, tmp_path / "plain.tar.gz", None)
    first, cold = make(tree, tmp_path / "first.tar.gz", cache)
    second, warm = make(tree, tmp_path / "second.tar.gz", cache)
    assert plain == first == second
    assert (none, cold, warm) == ([False, False], [False, False], [True, True])
    assert len(list(cache.folder.iterdir())) == 2


def test_large_files_come_from_the_cache_after_any_change(tree: Path, cache: BlockCache, tmp_path: Path) -> None:
    make(tree, tmp_path / "x.tar.gz", cache)
    (tree / "a-new-one").write_bytes(b"n" * 1000)
    (tree / "lib/aa.h").write_bytes(b"more")
    changed, hits = make(tree, tmp_path / "x.tar.gz", cache)
    assert hits == [True, True]
    assert changed == make(tree, tmp_path / "y.tar.gz", None)[0]
    (tree / "lib/b.dylib").write_bytes(bytes(LARGE) + b"c")
    changed, hits = make(tree, tmp_path / "x.tar.gz", cache)
    assert hits == [True, False]
    assert changed == make(tree, tmp_path / "y.tar.gz", None)[0]
    assert make(tree, tmp_path / "x.tar.gz", cache)[1] == [True, True]


def test_same_content_under_two_names_is_one_entry(tree: Path, cache: BlockCache, tmp_path: Path) -> None:
    shutil.copyfile(tree / "lib/a.dylib", tree / "lib/c.dylib")
    data, _ = make(tree, tmp_path / "x.tar.gz", cache)
    assert len(list(cache.folder.iterdir())) == 2
    assert make(tree, tmp_path / "x.tar.gz", cache) == (data, [True, True, True])


def test_another_compressor_does_not_use_the_entry(tree: Path, cache: BlockCache, tmp_path: Path) -> None:
    make(tree, tmp_path / "x.tar.gz", cache)
    sha256 = records(tree)["lib/a.dylib"].sha256
    assert sha256 is not None
    with cache.open(sha256) as found, BlockCache(cache.folder, "another version").open(sha256) as other:
        assert found is not None
        assert other is None


def damaged(data: bytes) -> Iterator[bytes]:
    yield b""
    yield data[: HEAD - 1]
    yield data[:-1]
    yield data + b"\0"
    yield bytes(len(data))
    for at in [*range(HEAD), HEAD, HEAD + 1000, len(data) - 1]:
        yield data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_damaged_entry_is_removed_and_rebuilt(tree: Path, cache: BlockCache, tmp_path: Path) -> None:
    data, _ = make(tree, tmp_path / "x.tar.gz", cache)
    sha256 = records(tree)["lib/a.dylib"].sha256
    assert sha256 is not None
    path = cache.path(sha256)
    entry = path.read_bytes()
    for wrong in damaged(entry):
        path.write_bytes(wrong)
        with cache.open(sha256) as found:
            assert found is None
        assert not path.exists()
    path.write_bytes(entry[:-1])
    assert make(tree, tmp_path / "x.tar.gz", cache) == (data, [False, True])
    assert path.read_bytes() == entry


def test_entry_with_another_content_under_this_name_is_not_used(tree: Path, cache: BlockCache, tmp_path: Path) -> None:
    data, _ = make(tree, tmp_path / "x.tar.gz", cache)
    first, second = (records(tree)[f"lib/{name}.dylib"].sha256 for name in "ab")
    assert first is not None
    assert second is not None
    shutil.copyfile(cache.path(second), cache.path(first))
    assert make(tree, tmp_path / "x.tar.gz", cache) == (data, [False, True])


def test_entries_that_cannot_be_written_cost_only_time(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "blocks").write_text("no folder")
    cache = block_cache(tmp_path / "blocks")
    assert make(tree, tmp_path / "x.tar.gz", cache) == make(tree, tmp_path / "y.tar.gz", None)


def test_use_of_an_entry_updates_its_time(tree: Path, cache: BlockCache, tmp_path: Path) -> None:
    make(tree, tmp_path / "x.tar.gz", cache)
    for path in cache.folder.iterdir():
        os.utime(path, (1, 1))
    make(tree, tmp_path / "x.tar.gz", cache)
    assert all(path.stat().st_mtime > 1e9 for path in cache.folder.iterdir())


def test_artifact_changed_after_verification_is_not_kept(tree: Path, cache: BlockCache, tmp_path: Path) -> None:
    output, expected = tmp_path / "x.tar.gz", records(tree)
    segments = pack(tree, output, top=TOP, epoch=0, jobs=1, records=expected, cache=cache)
    cache.keep(output, segments)
    assert not cache.folder.exists()
    verify_tarball(output, expected, top=TOP, segments=segments)
    with output.open("r+b") as file:
        file.seek(segments[0].at + 500)
        file.write(b"changed")
    cache.keep(output, segments)
    assert [path.name for path in cache.folder.iterdir()] == [cache.path(segments[1].sha256).name]


@pytest.mark.parametrize("warm", [False, True])
def test_verify_rejects_all_damage_in_and_around_segments(
    tree: Path, cache: BlockCache, tmp_path: Path, *, warm: bool
) -> None:
    output, expected = tmp_path / "x.tar.gz", records(tree)
    if warm:
        make(tree, output, cache)
    segments = pack(tree, output, top=TOP, epoch=0, jobs=1, records=expected, cache=cache)
    assert [segment.block is not None for segment in segments] == [warm, warm]
    data = output.read_bytes()
    places = [segment.at + step for segment in segments for step in (-4, -1, 0, 1, segment.packed - 1, segment.packed)]
    for at in [*places, *(segment.at + segment.packed // 2 for segment in segments), len(data) - 8, len(data) - 1]:
        output.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(IntegrityError):
            verify_tarball(output, expected, top=TOP, segments=segments)
    for size in (0, 9, segments[0].at, segments[1].at + 100, len(data) - 8, len(data) - 1):
        output.write_bytes(data[:size])
        with pytest.raises(IntegrityError):
            verify_tarball(output, expected, top=TOP, segments=segments)
    output.write_bytes(data + b"\0")
    with pytest.raises(IntegrityError, match="something follows"):
        verify_tarball(output, expected, top=TOP, segments=segments)


def shifted(segment: GzipSegment, **changes: int) -> GzipSegment:
    fields = {name: getattr(segment, name) for name in ("sha256", "start", "size", "at", "packed", "crc", "block")}
    return GzipSegment(**{**fields, **{name: fields[name] + step for name, step in changes.items()}})


@pytest.mark.parametrize("warm", [False, True])
def test_verify_does_not_trust_the_given_segments(tree: Path, cache: BlockCache, tmp_path: Path, *, warm: bool) -> None:
    output, expected = tmp_path / "x.tar.gz", records(tree)
    if warm:
        make(tree, output, cache)
    first, second = pack(tree, output, top=TOP, epoch=0, jobs=1, records=expected, cache=cache)
    lies = [
        [shifted(first, at=-1, packed=1), second],
        [shifted(first, packed=1), second],
        [shifted(first, packed=-1), second],
        [shifted(first, packed=-4), second],
        [shifted(first, start=512), second],
        [shifted(first, size=512), second],
        [shifted(first, crc=-1 if first.crc else 1), second],
        [GzipSegment(second.sha256, first.start, first.size, first.at, first.packed, first.crc, first.block), second],
        [
            shifted(second, start=first.start - second.start, at=first.at - second.at),
            second,
        ],
        [second, first],
        [first, second, second],
    ]
    for segments in lies:
        with pytest.raises(IntegrityError):
            verify_tarball(output, expected, top=TOP, segments=segments)
    verify_tarball(output, expected, top=TOP, segments=[second])
    verify_tarball(output, expected, top=TOP)


def test_cached_file_that_differs_from_its_record_is_named(tree: Path, cache: BlockCache, tmp_path: Path) -> None:
    output, expected = tmp_path / "x.tar.gz", records(tree)
    make(tree, output, cache)
    segments = pack(tree, output, top=TOP, epoch=0, jobs=1, records=expected, cache=cache)
    record = expected["lib/b.dylib"]
    expected["lib/b.dylib"] = FileRecord(path=record.path, size=record.size, sha256="0" * 64, mode=record.mode)
    with pytest.raises(IntegrityError, match=r"lib/b\.dylib: differs from what was packed in sha256$"):
        verify_tarball(output, expected, top=TOP, segments=segments)


def test_file_that_differs_from_its_record_is_noticed(tree: Path, cache: BlockCache, tmp_path: Path) -> None:
    expected = records(tree)
    with (tree / "lib/a.dylib").open("ab") as file:
        file.write(b"more")
    with pytest.raises(IntegrityError, match="changed while it was packed"):
        pack(tree, tmp_path / "x.tar.gz", top=TOP, epoch=0, jobs=1, records=expected, cache=cache)
    with (tree / "lib/a.dylib").open("r+b") as file:
        file.write(b"other")
        file.truncate(expected["lib/a.dylib"].size or 0)
    segments = pack(tree, tmp_path / "x.tar.gz", top=TOP, epoch=0, jobs=1, records=expected, cache=cache)
    with pytest.raises(IntegrityError, match=r"lib/a\.dylib: differs"):
        verify_tarball(tmp_path / "x.tar.gz", expected, top=TOP, segments=segments)


def test_segment_of_several_blocks_is_read_by_other_programs(tree: Path, cache: BlockCache, tmp_path: Path) -> None:
    (tree / "lib/a.dylib").write_bytes(b"".join(b"%d\n" % number for number in range(900_000)))
    make(tree, tmp_path / "x.tar.gz", cache)
    data, hits = make(tree, tmp_path / "x.tar.gz", cache)
    assert hits == [True, True]
    assert (tree / "lib/a.dylib").read_bytes() in gzip.decompress(data)
