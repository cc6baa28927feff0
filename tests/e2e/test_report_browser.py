"""Check the report in a real browser (Chromium): nothing overflows, no message is logged, all text is readable."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator
from fcntl import F_DUPFD_CLOEXEC, fcntl
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from macbuild.cli.report import write_report
from tests.conftest import program
from tests.support import reports

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
TIMEOUT = 60.0
WIDTHS = (360, 390, 768, 1440)
SCHEMES = ("light", "dark")

# WCAG 2.1: the contrast of all visible text with the shape or box behind it.
CONTRAST = """
(() => {
  const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => {
    const [red, green, blue] = numbers(color).map(channel);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const solid = color => color.startsWith('rgb') && (numbers(color)[3] ?? 1) > 0;
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const shapes = at instanceof SVGElement ? [...at.children].filter(c => c.tagName === 'rect') : [];
      const fill = shapes.length ? getComputedStyle(shapes.at(-1)).fill : 'none';
      if (solid(fill)) return fill;
      const color = getComputedStyle(at).backgroundColor;
      if (solid(color)) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const bad = [];
  let seen = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || node.tagName === 'title' || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(node instanceof SVGElement ? style.fill : style.color), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen++;
    if (ratio < 4.5) bad.push([walker.currentNode.data.slice(0, 60), ratio]);
  }
  return {seen, bad};
})()
"""
# Text and boxes that overflow the window outside a scrolling box.
OUTSIDE = """
[...document.body.querySelectorAll('*')].filter(node => {
  const box = node.getBoundingClientRect();
  return box.width && box.right > innerWidth + 0.5 && !node.closest('.scroll, .stack, svg');
}).map(node => node.outerHTML.slice(0, 120))
"""
PAGE_WIDTH = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"


class Browser:
    """Chromium without a window, driven by the DevTools protocol over two pipes: JSON texts that end in NUL."""

    def __init__(self, profile: Path) -> None:
        path = program("chromium", "chromium")
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        # Above 3 and 4, the numbers that Chromium reads and writes.
        high = [fcntl(descriptor, F_DUPFD_CLOEXEC, 10) for descriptor in (commands, answers)]
        self.events: list[dict[str, Any]] = []
        self._buffer = b""
        self._ids = count(1)
        actions = [
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, high[0], 3),
            (os.POSIX_SPAWN_DUP2, high[1], 4),
        ]
        arguments = [path, *FLAGS, f"--user-data-dir={profile}"]
        self._process = os.posix_spawn(path, arguments, os.environ, file_actions=actions)
        for descriptor in (commands, answers, *high):
            os.close(descriptor)

    def call(self, method: str, session: str | None = None, **parameters: object) -> Any:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def wait(self, method: str) -> None:
        while not any(event["method"] == method for event in self.events):
            self.events.append(self._read())

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._in, 1 << 20)
            assert more, "the browser has gone"
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        data: dict[str, Any] = json.loads(message)
        return data

    def close(self) -> None:
        self.call("Browser.close")
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)


class Tab:
    """One page, at one width and in one colour scheme at a time."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> Any:
        return self.browser.call(method, self.session, **parameters)

    def show(self, path: Path, width: int, scheme: str) -> None:
        phone = width < 700
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.browser.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.browser.wait("Page.loadEventFired")

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"]["value"]

    @property
    def complaints(self) -> list[object]:
        kinds = {
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Page.javascriptDialogOpening",
        }
        return [event for event in self.browser.events if event["method"] in kinds]

    @property
    def requests(self) -> list[str]:
        sent = [event for event in self.browser.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield Tab(browser)
    browser.close()


@pytest.fixture(scope="module", params=[reports.successful, reports.failed, reports.idle])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    path = folder / "report.html"
    write_report(path, *request.param(folder))
    return path


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_never_scrolls_sideways(tab: Tab, page: Path, width: int) -> None:
    tab.show(page, width, "light")
    shown, window = tab.value(PAGE_WIDTH)
    assert (shown, window) == (width, width)
    assert tab.value(OUTSIDE) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_browser_reports_no_problem_and_loads_only_the_page(tab: Tab, page: Path, scheme: str) -> None:
    tab.show(page, 1440, scheme)
    assert tab.value("document.querySelectorAll('section').length") >= 4
    assert tab.complaints == []
    assert tab.requests == [page.as_uri()]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [360, 1440])
def test_every_text_has_enough_contrast(tab: Tab, page: Path, width: int, scheme: str) -> None:
    tab.show(page, width, scheme)
    result = tab.value(CONTRAST)
    assert result["seen"] > 100
    assert result["bad"] == []


def test_the_dark_scheme_is_dark(tab: Tab, page: Path) -> None:
    shades = {}
    for scheme in SCHEMES:
        tab.show(page, 390, scheme)
        shades[scheme] = tab.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert max(shades["dark"]) < 60
    assert min(shades["light"]) > 200


@pytest.mark.parametrize("width", [360, 1440])
def test_tables_and_pictures_are_readable_by_screen_readers(tab: Tab, page: Path, width: int) -> None:
    tab.show(page, width, "light")
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
    assert roles.count("table") == tab.value("document.querySelectorAll('table').length")
    assert roles.count("row") == tab.value("document.querySelectorAll('tr').length")
    pictures = [node["name"]["value"] for node in nodes if not node["ignored"] and node["role"]["value"] == "image"]
    assert len(pictures) == tab.value("document.querySelectorAll('svg[role=img]').length") > 0
    assert all(pictures)


def test_wide_pictures_scroll_in_their_own_box_on_a_phone(tab: Tab, page: Path) -> None:
    tab.show(page, 360, "light")
    wide = tab.value(
        "[...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth, box.clientWidth, box.tabIndex])"
    )
    assert wide
    assert all(content > box > 200 and index == 0 for content, box, index in wide)
