from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from macbuild.errors import NoSpaceError, StoreError
from macbuild.files import tree_size
from macbuild.store import Store, digest

KEY = "ab" + "0" * 62
OTHER = "cd" + "0" * 62


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "cache")
    store.prepare()
    return store


def put(store: Store, key: str, content: str = "x") -> None:
    with store.locked(key), store.building(key, "alpha/fetch") as work:
        (work / "file").write_text(content)


def test_a_result_exists_only_after_its_block_succeeded(store: Store) -> None:
    with store.building(KEY, "step") as work:
        (work / "file").write_text("x")
        assert not store.has(KEY)
    assert store.has(KEY)
    assert (store.path(KEY) / "file").read_text() == "x"


def test_a_block_that_fails_leaves_nothing(store: Store) -> None:
    def fail() -> None:
        with store.building(KEY, "step") as work:
            (work / "file").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not store.has(KEY)
    assert list((store.root / "work").iterdir()) == []


def test_a_full_disk_is_a_no_space_error_and_leaves_nothing(store: Store) -> None:
    with pytest.raises(NoSpaceError), store.building(KEY, "step"):
        raise OSError(28, "No space left on device")
    assert not store.has(KEY)


def test_leftovers_of_a_killed_run_are_not_in_the_next_result(store: Store) -> None:
    leftover = store.root / "work" / KEY / "old"
    leftover.mkdir(parents=True)
    leftover.chmod(0o500)
    put(store, KEY)
    assert sorted(path.name for path in store.path(KEY).iterdir()) == ["file", "meta.json"]


def test_a_result_without_its_last_file_is_replaced(store: Store) -> None:
    put(store, KEY)
    (store.path(KEY) / "meta.json").unlink()
    assert not store.has(KEY)
    put(store, KEY, "new")
    assert (store.path(KEY) / "file").read_text() == "new"


def test_records_hold_the_ingredients_and_damaged_ones_are_none(store: Store) -> None:
    store.write_record("a/b", {"x": "1"})
    assert store.record("a/b") == {"x": "1"}
    (path,) = (store.root / "records").iterdir()
    for content in (b"[]", b"{", b"\xff"):
        path.write_bytes(content)
        assert store.record("a/b") is None


def test_entries_have_size_and_step_and_survive_damage(store: Store) -> None:
    put(store, KEY, "12345")
    put(store, OTHER)
    (store.path(OTHER) / "meta.json").write_text("{")
    damaged, whole = store.entries()
    assert (whole.key, whole.step, whole.size) == (KEY, "alpha/fetch", 5)
    assert (damaged.key, damaged.step) == (OTHER, "damaged")


def test_prune_removes_only_unused_results_and_leftovers(store: Store) -> None:
    put(store, KEY)
    put(store, OTHER)
    old = time.time() - 10 * 86400
    os.utime(store.path(KEY) / "meta.json", (old, old))
    (store.root / "work" / "killed").mkdir()
    stale, fresh = store.partial("1" * 64), store.partial("2" * 64)
    stale.mkdir()
    fresh.mkdir()
    os.utime(stale, (old, old))
    assert [entry.key for entry in store.prune(5)] == [KEY]
    assert not store.has(KEY)
    assert store.has(OTHER)
    assert list((store.root / "work").iterdir()) == []
    assert list((store.root / "partial").iterdir()) == [fresh]


def test_use_keeps_a_result_from_being_pruned(store: Store) -> None:
    put(store, KEY)
    os.utime(store.path(KEY) / "meta.json", (1, 1))
    store.touch(KEY)
    assert store.prune(1) == []


def test_prune_of_zero_days_removes_everything(store: Store) -> None:
    put(store, KEY)
    assert len(store.prune(0)) == 1


def test_clean_removes_the_cache(store: Store) -> None:
    put(store, KEY, "12345")
    assert store.clean() >= 5
    assert not store.root.exists()
    assert store.clean() == 0


def test_clean_removes_only_our_own_folders(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    store = Store(tmp_path)
    store.prepare()
    store.clean()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("tag", [None, "", "Signature: 8a477f597d28d172789f06886806bc55\n# of another program\n"])
def test_clean_refuses_a_folder_that_is_not_a_cache_of_ours(tmp_path: Path, tag: str | None) -> None:
    (tmp_path / "results").mkdir()
    if tag is not None:
        (tmp_path / "CACHEDIR.TAG").write_text(tag)
    with pytest.raises(StoreError, match="not a cache of macbuild"):
        Store(tmp_path).clean()
    assert (tmp_path / "results").exists()


def test_a_tag_truncated_by_a_killed_run_is_rewritten(store: Store) -> None:
    (store.root / "CACHEDIR.TAG").write_text("Sign")
    store.prepare()
    store.clean()


def test_a_symlink_to_the_cache_stays_and_can_be_used_again(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to("disk")
    store = Store(tmp_path / "cache")
    with store.in_use():
        put(store, KEY)
    store.clean()
    assert list((tmp_path / "disk").iterdir()) == []
    with store.in_use():
        put(store, KEY)
    assert store.has(KEY)


def test_cleaning_and_using_exclude_each_other(store: Store) -> None:
    with store.in_use(), store.in_use(), pytest.raises(StoreError, match="using"), store.in_use(alone=True):
        pass
    with store.in_use(alone=True), pytest.raises(StoreError, match="cleaning"), store.in_use():
        pass
    with store.in_use(alone=True):
        pass


def test_a_run_that_starts_during_a_clean_finds_a_cache(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = Store.prepare
    calls = []

    def cleaned_in_between(self: Store) -> None:
        prepare(self)
        calls.append(1)
        if len(calls) == 1:
            self.clean()
            (self.root).mkdir()

    monkeypatch.setattr(Store, "prepare", cleaned_in_between)
    with store.in_use():
        put(store, KEY)
    assert store.has(KEY)


def test_a_key_is_locked_by_one_run_at_a_time(store: Store) -> None:
    order: list[str] = []

    def other() -> None:
        with store.locked(KEY):
            order.append("other")

    with store.locked(KEY):
        thread = threading.Thread(target=other)
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


def test_waiting_for_a_lock_can_be_stopped(store: Store) -> None:
    with store.locked(KEY), store.locked(KEY, lambda: True):
        pass


@pytest.mark.parametrize("kind", ["file", "dangling"])
def test_an_impossible_cache_folder_is_a_store_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "cache"
    if kind == "file":
        path.write_text("x")
    else:
        path.symlink_to("nowhere")
    store = Store(path)
    assert not store.has(KEY)
    assert store.entries() == []
    with pytest.raises(StoreError), store.in_use():
        pass


def test_a_damaged_result_can_be_discarded(store: Store) -> None:
    put(store, KEY)
    store.discard(KEY)
    assert not store.has(KEY)
    store.discard(KEY)


def test_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 2, "b": 1})


def test_meta_has_the_size_without_itself(store: Store) -> None:
    put(store, KEY, "12345")
    assert json.loads((store.path(KEY) / "meta.json").read_text()) == {"size": 5, "step": "alpha/fetch"}
    assert tree_size(store.path(KEY)) > 5


def test_facts_are_used_only_by_the_code_that_found_them(store: Store) -> None:
    facts = store.facts("one")
    assert facts.get("key") is None
    facts.put("key", b"value")
    assert store.facts("one").get("key") == b"value"
    assert store.facts("two").get("key") is None
    assert facts.get("other") is None
    assert len(list((store.root / "facts").iterdir())) == 1


def test_facts_that_cannot_be_stored_are_not_an_error(tmp_path: Path) -> None:
    facts = Store(tmp_path / "none").facts("code")
    facts.put("key", b"value")
    assert facts.get("key") is None


def test_a_signature_is_verified_again_by_other_code(store: Store) -> None:
    store.remember_verified(KEY, "a" * 64)
    assert store.is_verified(KEY, "a" * 64)
    assert not store.is_verified(KEY, "b" * 64)
    assert not store.is_verified(OTHER, "a" * 64)


def test_prune_removes_what_no_download_resumes(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    store.prepare()
    folder = store.partial("a" * 64)
    (folder / "0123456789abcdef").mkdir(parents=True)
    kept = ["a.part", "a.part.json", "a.part.lock"]
    for name in (*kept, "a.part.0123456789abcdef", "a.part.0123456789abcdef.json", "b.part.lock"):
        (folder / name).touch()
    store.prune(30)
    assert sorted(path.name for path in folder.iterdir()) == kept


def test_prune_removes_facts_that_were_not_used(store: Store) -> None:
    facts = store.facts("code")
    for key in ("used", "unused"):
        facts.put(key, b"value")
    for path in (store.root / "facts").iterdir():
        os.utime(path, (1, 1))
    assert facts.get("used") == b"value"
    store.prune(5)
    assert facts.get("used") == b"value"
    assert facts.get("unused") is None
