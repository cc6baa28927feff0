"""Test the page of `--report`: complete, self-contained, safe against hostile names, and right about the run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from macbuild.cli.report import write_report
from macbuild.cli.report.findings import findings
from macbuild.cli.report.graph import layout, step_graph
from macbuild.cli.report.markup import Html, el, printable
from macbuild.cli.report.page import render
from macbuild.cli.report.timeline import lanes, states
from macbuild.cli.report.treemap import Part, by_folder, parts, squarify
from macbuild.commands.build import BuildResult
from macbuild.errors import FileError, MacbuildError, StoreError
from macbuild.package.manifest import Binary, FileRecord
from macbuild.plan.model import Plan, Step
from macbuild.units import duration, size
from tests.support import reports

VOID = {"meta", "link", "br"}
ONE = "libtorch-2.13.0-macos-arm64"


class Page(HTMLParser):
    """Read a page strictly: every opened element is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def attributes(self, name: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(name)) is not None]


@pytest.fixture(params=[reports.successful, reports.failed, reports.idle])
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Page:
    return Page(render(*request.param(tmp_path)))


def test_page_is_well_formed_with_unique_ids_and_working_links(page: Page) -> None:
    ids = page.attributes("id")
    assert len(set(ids)) == len(ids)
    targets = [href for href in page.attributes("href") if href != "data:,"]
    assert {"#artifacts", "#timeline", "#graph"} <= set(targets)
    assert all(target.removeprefix("#") in ids for target in targets)
    assert set(page.attributes("aria-labelledby")) <= set(ids)


def test_each_page_loads_nothing_and_runs_nothing(page: Page) -> None:
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "base", "form"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert not page.attributes("src")
    assert all(href.startswith(("#", "data:")) for href in page.attributes("href"))
    assert sum(tag == "style" for tag, _ in page.elements) == 1
    assert any("default-src 'none'" in value for value in page.attributes("content"))


def test_the_style_loads_nothing(tmp_path: Path) -> None:
    text = render(*reports.idle(tmp_path))
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style


def test_headings_go_down_one_level_at_a_time(page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_pictures_have_a_text_and_headers_a_scope(page: Page) -> None:
    pictures = [attributes for tag, attributes in page.elements if tag == "svg" and attributes.get("role") == "img"]
    assert pictures
    assert all(attributes.get("aria-label") for attributes in pictures)
    assert all("scope" in attributes for tag, attributes in page.elements if tag == "th")


def test_hostile_names_are_shown_as_text(tmp_path: Path) -> None:
    page = Page(render(*reports.successful(tmp_path, 100)))
    assert reports.HOSTILE[0] in page.text
    assert reports.HOSTILE[1] in page.text
    assert "right\\u202eto-left&amp;\\x00\\x1b[31m.h" in page.text
    assert "\u202e" not in page.text
    assert "x" * 2000 not in page.text


def test_text_with_lone_surrogates_is_written(tmp_path: Path) -> None:
    result, steps = reports.failed(tmp_path)
    errors: dict[str, MacbuildError] = {"a/b": StoreError("is damaged", where=Path("a\udc80b"))}
    write_report(tmp_path / "r.html", BuildResult(result.plan, (), errors, {}), steps)
    assert "a\\udc80b" in (tmp_path / "r.html").read_text("utf-8")


def test_page_of_12000_files_is_small_and_counts_them_all(tmp_path: Path) -> None:
    text = render(*reports.successful(tmp_path, 12_000))
    assert len(text.encode()) < 200_000
    assert "13,509 files" in text


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    assert render(*reports.successful(tmp_path, 300)) == render(*reports.successful(tmp_path, 300))


def test_an_artifact_shows_its_facts(tmp_path: Path) -> None:
    text = Page(render(*reports.successful(tmp_path, 100))).text
    for fact in (f"{ONE}.tar.gz", "83.0 MB packed", reports.HASH, "Minimum macOS14.0", "wheel torch==2.13.0", "1 link"):
        assert fact in text
    for need in ("Metal", "libSystem.B.dylib", "torch 2.13.0"):
        assert need in text


def test_failure_comes_first_with_hint_and_missing_artifacts() -> None:
    page = Page(render(*reports.failed(Path.home())))
    sections = [attributes.get("id") for tag, attributes in page.elements if tag == "section"]
    assert sections[:2] == ["problems", "artifacts"]
    assert "the release policy rejects the stage" in page.text
    assert "What to do: go online" in page.text
    assert f"Not built{ONE} for arm64" in page.text
    assert f"{ONE}/packnot run" in page.text
    assert "1 failed" in page.text


def test_the_home_folder_is_not_disclosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "alice"
    monkeypatch.setenv("HOME", str(home))
    text = render(*reports.failed(home))
    assert "alice" not in text
    assert "macbuild audit ~/store/results/stage" in text


def test_a_folder_beside_the_home_folder_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "alice"))
    assert str(tmp_path / "alice2" / "store") in render(*reports.failed(tmp_path / "alice2"))


def test_title_names_each_component_once_and_few_of_many(tmp_path: Path) -> None:
    result, steps = reports.successful(tmp_path, 10)
    twice = (reports.artifact(f"{ONE} tarball", "alpha"), reports.artifact(f"{ONE} wheel", "alpha"))

    def title(plan: Plan) -> str:
        return render(BuildResult(plan, result.published, {}, {}), steps).partition("<h1>")[2].partition("</h1>")[0]

    assert title(structs.replace(result.plan, artifacts=twice)) == "alpha 2.13.0 for macOS arm64"
    many = tuple(reports.artifact(f"{ONE}{index}", f"part{index}") for index in range(9))
    assert title(structs.replace(result.plan, artifacts=many)).startswith(
        "part0 2.13.0, part1 2.13.0, part2 2.13.0 and 6 "
    )
    stage = structs.replace(result.plan, artifacts=(), stages=(f"{ONE}/fix",))
    assert title(stage) == "libtorch for macOS arm64"


def test_libraries_of_others_are_not_shown_as_inside(tmp_path: Path) -> None:
    binary = Binary(
        path="backends/x/libtriton_x.so",
        install_name="@rpath/libtriton_x.so",
        archs=["arm64"],
        needs=["@rpath/libc10.dylib", "@rpath/libtritonserver.dylib", "/usr/lib/libSystem.B.dylib"],
    )
    entry = structs.replace(reports.entry(ONE, reports.records(3)), binaries=[binary])
    text = Page(render(BuildResult(reports.idle(tmp_path)[0].plan, (reports.made(tmp_path, ONE, entry),), {}, {}), []))
    assert "InsideElsewheremacOS" in text.text
    assert "libc10.dyliblibtritonserver.dyliblibSystem.B.dylib" in text.text
    assert "Libraries from elsewhere (1)libtritonserver.dylib" in text.text


def test_counts_leave_out_links_and_tools_are_named_once(tmp_path: Path) -> None:
    files = reports.records(3)
    entry = structs.replace(reports.entry(ONE, files), tools={"zig": "zig 0.17.0", "macbuild": "1.0"})
    text = Page(
        render(BuildResult(reports.idle(tmp_path)[0].plan, (reports.made(tmp_path, ONE, entry),), {}, {}), [])
    ).text
    assert f"The largest of {len(files) - 1} files" in text
    assert "Built withzig 0.17.0, macbuild 1.0" in text


def test_graph_names_consumers_and_keeps_labels_apart() -> None:
    long = "onnxruntime_backend-0.1.0-macos-universal2"
    steps = {f"{long}/build": reports.step(long, "build", [])}
    steps["b-1-host/consumer"] = reports.step("b-1-host", "consumer", [f"{long}/build"])
    picture = step_graph(Plan(steps, ()), states(Plan(steps, ()), []))
    assert ">consumer<" in picture
    labels = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="track"><title>.*?</title>([^<]+)<', picture)
    (first, height, name), (second, other, short) = labels
    assert (height, short) == (other, "b-1-host")
    assert name.endswith("…")
    assert float(first) + 6.7 * len(name) < float(second)
    assert long in picture


def test_verdict_says_what_was_built_and_left_out(tmp_path: Path) -> None:
    result, steps = reports.successful(tmp_path, 10)
    left_out = dict(reports.failed(tmp_path)[0].unreachable)
    text = Page(render(BuildResult(result.plan, result.published, {}, left_out), steps)).text
    assert "Built, without some components" in text
    assert "Left out onnxruntime" in text
    assert "Nothing was built" in Page(render(BuildResult(result.plan, (), {}, left_out), steps)).text


def test_a_run_with_nothing_to_do_says_so(tmp_path: Path) -> None:
    text = Page(render(*reports.idle(tmp_path))).text
    assert "Nothing to do: up to date" in text
    assert "No step had to run." in text


def test_findings_are_by_severity_and_long_lists_are_cut(tmp_path: Path) -> None:
    found = [reports.finding("info", "i"), *(reports.finding("warning", f"w{index}") for index in range(150))]
    found.append(reports.finding("error", "e"))
    row = reports.made(tmp_path, ONE, reports.entry(ONE, reports.records(5), found))
    text = Page(findings(row)).text.partition("Findings by severity")[2]
    assert text.index("1 error") < text.index("150 warnings, the first 100 of them") < text.index("1 remark")
    assert "w99" in text
    assert "w100" not in text
    assert "Reason: why so" in text


def test_writing_over_a_folder_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "r.html").mkdir(parents=True)
    with pytest.raises(FileError):
        write_report(place / "r.html", *reports.idle(tmp_path))
    assert [path.name for path in place.iterdir()] == ["r.html"]
    assert (place / "r.html").is_dir()


def test_parallel_steps_have_their_own_lanes_and_lanes_are_reused() -> None:
    events = [reports.event("a", 0, 4), reports.event("b", 1, 1), reports.event("c", 2, 2), reports.event("d", 4, 4)]
    spans = {span.event.step: span for span in lanes(events)}
    assert {name: span.lane for name, span in spans.items()} == {"a": 0, "b": 1, "c": 1, "d": 0}
    assert (spans["c"].start, spans["c"].width) == (0.25, 0.25)


def test_last_end_of_a_step_counts_and_states_are_distinguished() -> None:
    steps = reports.chain(ONE)
    plan = Plan(steps, (reports.artifact(ONE, "libtorch"),))
    ended = states(plan, [reports.event(f"{ONE}/fetch", 0, 1, "failed"), reports.event(f"{ONE}/fetch", 1, 2)])
    assert (ended[f"{ONE}/fetch"].status, ended[f"{ONE}/fetch"].seconds) == ("built", 2)
    assert ended[f"{ONE}/pack"].word == "not run"
    goal = {f"{ONE}/pack": reports.step(ONE, "pack", [f"{ONE}/fix", f"{ONE}/audit"], cached=True)}
    ended = states(Plan(steps | goal, plan.artifacts), [])
    assert (ended[f"{ONE}/pack"].word, ended[f"{ONE}/fetch"].word) == ("in store", "not needed")


@given(st.lists(st.sets(st.integers(0, 30), max_size=4), max_size=30))
@example([set(), set(), set(), {0}, {0, 2, 3}, {3}])
def test_step_is_right_of_its_needs_and_overlaps_no_other(needs: list[set[int]]) -> None:
    steps: dict[str, Step] = {}
    for index, chosen in enumerate(needs):
        before = [f"t/{need}" for need in sorted(chosen) if need < index]
        steps[f"t/{index}"] = reports.step("t", str(index), before)
    places = layout(steps)
    for step in steps.values():
        assert all(places[need].layer < places[step.id].layer for need in step.needs)
    for name, place in places.items():
        others = [other for key, other in places.items() if key != name and other.layer == place.layer]
        assert all(abs(other.row - place.row) >= 1 for other in others)


@given(st.lists(st.integers(1, 10**10), min_size=1, max_size=60))
@example([1, 5_865_294_507, 5_865_294_507])
def test_areas_are_proportional_and_fill_without_overlap(sizes: list[int]) -> None:
    found = [Part(str(index), value, 1) for index, value in enumerate(sorted(sizes, reverse=True))]
    areas = squarify(found)
    assert [area.part for area in areas] == found
    for index, area in enumerate(areas):
        assert area.width * area.height == pytest.approx(area.part.size / sum(sizes), rel=1e-3, abs=1e-9)
        assert -1e-6 < area.x <= area.x + area.width < 1 + 1e-6
        assert -1e-6 < area.y <= area.y + area.height < 1 + 1e-6
        for other in areas[:index]:
            wide = min(area.x + area.width, other.x + other.width) - max(area.x, other.x)
            high = min(area.y + area.height, other.y + other.height) - max(area.y, other.y)
            assert wide < 1e-6 or high < 1e-6


def test_parts_hold_every_byte_and_every_file_once() -> None:
    files = [*reports.records(3000), FileRecord(path="deep/a/b/c.txt", size=1)]
    found = parts(files)
    assert sum(part.size for part in found) == sum(record.size or 0 for record in files)
    assert sum(part.files for part in found) == sum(record.link is None for record in files)
    assert len(found) < 82
    folders = by_folder(files, 2, 3)
    assert sum(part.size for part in folders) == sum(record.size or 0 for record in files)
    assert [part.name for part in folders] == ["lib/", "include/ATen/", "include/torch/", "2 other folders"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (7 * 10**15, "7000.0 TB"),
    ],
)
def test_sizes_are_in_decimal_units(number: int, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.004, "4 ms"),
        (0.1, "0.10 s"),
        (9.996, "10.0 s"),
        (59.96, "1 min 0 s"),
        (89.2, "1 min 29 s"),
        (7260, "2 h 1 min"),
    ],
)
def test_durations_are_easy_to_read(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_only_markup_stays_unescaped() -> None:
    assert el("p", "<b>", Html("<b></b>"), title='"') == '<p title="&quot;">&lt;b&gt;<b></b></p>'
    assert printable("a\nb\tc\u2028") == "a\nb\\x09c\\u2028"
