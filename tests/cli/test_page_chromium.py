"""The page at / of a real daemon, in a real Chromium: its text, its charts and its security policy."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("jinja2")
pytest.importorskip("playwright")
pytest.importorskip("axe_playwright_python")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Error, expect, sync_playwright

from tests.cli.conftest import Command
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.warm import Warm

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FIGURES = Path(__file__).resolve().parents[2] / ".figures"
TOKEN = "canary-token-of-the-tests-0123456789"
CANARY = "x\"'><img src=x onerror=window.canary=1>&amp;<script>window.canary=1</script>"
PHONE, DESK = (320, 700), (1280, 900)

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed"),
    pytest.mark.xdist_group("chromium"),
]


@dataclass
class World:
    """A daemon with three logs: one is safe, one has a late replica, and one is frozen."""

    litelog: Command
    url: str

    def path(self, name: str) -> str:
        return str(self.litelog.folder / name)

    def append(self, count: int, log: str) -> None:
        self.litelog.lines(count, log=log)


@contextmanager
def run_daemon(folder: Path, warm: Warm, logs: dict[str, list[str]], **keys: Any) -> Iterator[World]:
    command = Command(folder, warm)
    entries = []
    for log, replicas in logs.items():
        command.lines(3, log=log)
        entries.append({"path": str(folder / log), "replicas": [{"url": str(folder / each)} for each in replicas]})
    (folder / "c.yml").write_text(json.dumps({"addr": "127.0.0.1:0", "logs": entries, **keys}))
    process = command.start("replicate", "--config", "c.yml")
    try:
        listening = command.wait_for_line(process, "listening at")[-1]
        found = re.search(r"listening at \S+:(\d+)", listening)
        assert found, listening
        yield World(command, f"http://127.0.0.1:{found[1]}/")
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, browser: Browser, warm: Warm) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    logs = {"orders": ["backup/orders"], CANARY: ["backup/canary"], "clicks": ["near", "far"], "ledger": ["books"]}
    with run_daemon(folder, warm, logs, **{"max-lag": "2s"}) as world:
        page = browser.new_page()
        wait_for(page, world.url, "All safe")
        (folder / "far").rename(folder / "gone")
        (folder / "far").write_bytes(b"")  # where a folder must be: every put fails
        world.append(5, "clicks")
        (segment,) = (each for each in (folder / "ledger").iterdir() if each.suffix == ".log")
        before = os.path.getsize(segment)
        world.append(2, "ledger")
        with segment.open("r+b") as file:
            file.seek(before)
            commit = file.read()
            file.seek(0, os.SEEK_END)
            file.write(commit)  # the same sequences once more
        wait_for(page, world.url, "1 of 5 replicas frozen, 1 late")
        page.close()
        yield world


def wait_for(page: Page, url: str, words: str) -> None:
    """Load the page again and again until it shows ``words``."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        page.goto(url)
        said = page.locator("h1").inner_text()
        if words in said:
            return
        assert time.monotonic() < deadline, (said, page.locator(".reasons").all_inner_texts())
        page.wait_for_timeout(100)


@contextmanager
def open_page(browser: Browser, url: str, size: tuple[int, int] = DESK, **how: Any) -> Iterator[Page]:
    """The page in a new browser window. AssertionError at the end if the browser has reported an error."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **how)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    try:
        page.goto(url)
        yield page
    finally:
        context.close()
    assert not [each for each in complaints if "Failed to load resource" not in each]


def rows(page: Page) -> list[tuple[str, str, str]]:
    """(log, replica, state) of each row on the page."""
    return [
        tuple(each)  # type: ignore[misc]
        for each in page.evaluate("""() => [...document.querySelectorAll('tr.replica')].map((row) => [
            row.closest('tbody').querySelector('h2').textContent,
            row.querySelector('.url').textContent, row.querySelector('.state').innerText])""")
    ]


def test_the_page_shows_safe_and_unsafe_replicas_the_worst_first(world: World, browser: Browser) -> None:
    with open_page(browser, world.url) as page:
        assert page.locator("h1").inner_text() == "✗ Not safe: 1 of 5 replicas frozen, 1 late"
        assert page.title() == "✗ Not safe: 1 of 5 replicas frozen, 1 late · litelog"
        shown = rows(page)
        assert shown[0] == (world.path("ledger"), f"file://{world.path('books')}", "✗ frozen")
        assert shown[1:3] == [
            (world.path("clicks"), f"file://{world.path('near')}", "✓ safe"),
            (world.path("clicks"), f"file://{world.path('far')}", "▲ late"),
        ]
        assert sorted(each[0] for each in shown[3:]) == sorted([world.path("orders"), world.path(CANARY)])
        assert {each[2] for each in shown[3:]} == {"✓ safe"}
        why = " ".join(page.locator("header .reasons").inner_text().split())
        assert re.search(rf"{re.escape(world.path('clicks'))}.*/far lags .* more than max-lag 2.0s", why)
        assert re.search(rf"{re.escape(world.path('ledger'))}.*/books frozen, ", why)
        late = page.locator("tr.replica", has_text="/far").locator("td")
        assert re.fullmatch(r"[0-9.a-z]+ [0-9.]+ \S*B", " ".join(late.nth(1).inner_text().split()))
        assert late.nth(2).locator(".above").get_attribute("d"), "the chart does not show the minute above max-lag"
        well = page.locator("tr.replica", has_text="backup/orders").locator("td")
        assert (well.nth(1).inner_text(), well.nth(4).inner_text()) == ("none", "3")
        command = page.locator("header .command", has_text="litelog verify").first
        expect(command.get_by_role("button")).to_have_text("Copy")


def test_details_hold_generations_with_reasons_and_errors(world: World, browser: Browser) -> None:
    with open_page(browser, world.url) as page:
        more = page.locator("tr.more", has_text="/far")
        expect(more.locator("table")).to_have_count(2)
        expect(more.locator("table").first).not_to_be_visible()
        more.locator("summary").click()
        generations, errors = more.locator("table").all()
        assert generations.locator("thead th").all_inner_texts()[1:] == [
            "Generation", "Relation", "Predecessor", "Reason",
        ]  # fmt: skip
        cells = generations.locator("tbody tr").inner_text().split()
        assert cells[-5:] == ["is", "the", "first", "none", "none"]
        assert re.fullmatch(r"[0-9a-f]{16}", cells[-6])
        assert "store" in errors.inner_text()
        assert "far" in errors.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE])
def test_it_fits_the_window_and_breaks_no_rule_of_accessibility(
    world: World, browser: Browser, scheme: Any, size: tuple[int, int]
) -> None:
    with open_page(browser, world.url, size, color_scheme=scheme) as page:
        FIGURES.mkdir(exist_ok=True)
        page.screenshot(path=FIGURES / f"page-{scheme}-{size[0]}.png", full_page=True)
        assert fits(page)
        found = Axe().run(page).response["violations"]
        assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == []
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
        assert fits(page)
        found = Axe().run(page).response["violations"]
        assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground))) < 384) == (scheme == "dark")


def fits(page: Page) -> bool:
    wide, window = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    return bool(wide <= window)


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_a_screen_reader_finds_landmarks_headers_names_and_the_charts_words(
    world: World, browser: Browser, size: tuple[int, int]
) -> None:
    with open_page(browser, world.url, size) as page:
        tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
        found = {
            (node["role"]["value"], node.get("name", {}).get("value", "")): node
            for node in tree
            if not node.get("ignored") and "role" in node
        }
        roles = {role for role, _ in found}
        assert {"banner", "main", "contentinfo", "search", "table", "columnheader", "rowheader", "status"} <= roles
        assert {name for role, name in found if role == "columnheader"} >= {"State", "Lag now", "Next sequence"}
        assert ("searchbox", "Filter") in found
        charts = [name for role, name in found if role in ("image", "img")]
        assert any(re.search(r"Lag over the last hour: at most .* above max-lag", name) for name in charts)
        assert any(name.startswith("Lag over the last hour: none, measured for") for name in charts)
        assert any(role == "heading" and "Not safe" in name for role, name in found)
        assert ("heading", world.path(CANARY)) in found
        parents = {node["nodeId"]: node for node in tree}
        live = next(node for (role, name), node in found.items() if role == "heading" and "Not safe" in name)
        while live["role"]["value"] != "status":
            live = parents[live["parentId"]]
        assert {each["name"]: each["value"].get("value") for each in live["properties"]}["live"] == "polite"


def test_the_content_of_a_path_or_a_filter_is_text(world: World, browser: Browser) -> None:
    for url in (world.url, f"{world.url}?q=%22%3E%3Cscript%3Ewindow.canary=1%3C/script%3E"):
        with open_page(browser, url) as page:
            page.wait_for_load_state("load")
            assert page.evaluate("[window.canary === undefined, document.images.length, document.scripts.length]") == [
                True, 0, 1,
            ]  # fmt: skip
    with open_page(browser, world.url) as page:
        assert world.path(CANARY) in page.locator("h2").all_text_contents()


def test_the_policy_runs_no_script_but_its_own(world: World, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(world.url)
    page.evaluate("""() => {
        window.blocked = [];
        document.addEventListener('securitypolicyviolation', (event) => {
            window.blocked.push(event.effectiveDirective); });
        const script = document.createElement('script');
        script.textContent = 'window.canary = 1';
        document.body.append(script);
        document.body.insertAdjacentHTML('beforeend', '<p onclick="window.canary = 1" style="color: red"></p>');
        document.body.lastElementChild.click();
        fetch('http://127.0.0.1:9/').catch(() => {});
    }""")
    page.wait_for_function("window.blocked.length >= 4")
    blocked = page.evaluate("window.blocked.sort()")
    assert blocked == ["connect-src", "script-src-attr", "script-src-elem", "style-src-attr"]
    assert page.evaluate("window.canary === undefined")
    context.close()


def test_without_scripts_the_page_shows_the_same_filters_and_reloads(world: World, browser: Browser) -> None:
    with open_page(browser, world.url, java_script_enabled=False) as page:
        assert page.locator("h1").inner_text() == "✗ Not safe: 1 of 5 replicas frozen, 1 late"
        assert page.locator("noscript meta[http-equiv=refresh]").get_attribute("content") == "60"
        page.get_by_label("Filter").fill("ORDERS")
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url("**/?q=ORDERS")
        assert page.locator("h2").all_inner_texts() == [world.path("orders")]
        assert page.locator("h1").inner_text() == "✗ Not safe: 1 of 5 replicas frozen, 1 late", "of all, not of these"
        page.locator("main summary").click()
        expect(page.locator("details table").first).to_be_visible()


def test_only_changed_parts_of_the_page_are_replaced(tmp_path: Path, browser: Browser, warm: Warm) -> None:
    logs = {f"log{number}": [f"backup{number}"] for number in range(6)}
    with run_daemon(tmp_path, warm, logs) as world, open_page(browser, world.url, PHONE) as page:
        expect(page.locator("h1")).to_have_text("✓ All safe", timeout=1000 * WAIT_SECONDS)
        page.locator("summary").nth(3).click()
        page.locator("summary").nth(2).focus()
        page.evaluate("window.scrollTo(0, 400); window.before = [...document.querySelectorAll('tr, details, h1')]")
        verdict = page.evaluate_handle("document.getElementById('words').firstChild")
        world.append(4, "log2")
        sequence = page.locator("tr.replica").nth(2).locator("[data-label='Next sequence']")
        expect(sequence).to_have_text("7", timeout=1000 * WAIT_SECONDS)
        assert page.evaluate("""(words) => [
            window.scrollY, [...document.querySelectorAll('details')].map((each) => each.open),
            document.activeElement === document.querySelectorAll('summary')[2],
            window.before.every((each) => each.isConnected),
            words === document.getElementById('words').firstChild]""", verdict) == [
            400, [False, False, False, True, False, False], True, True, True,
        ]  # fmt: skip
        page.get_by_label("Filter").press_sequentially("log4")
        expect(page.locator("h2")).to_have_text([world.path("log4")], timeout=1000 * WAIT_SECONDS)
        assert page.url == f"{world.url}?q=log4"
        assert page.evaluate("document.activeElement.id + ' ' + document.activeElement.value") == "q log4"


def test_a_hidden_page_makes_no_requests(world: World, browser: Browser) -> None:
    with open_page(browser, "about:blank") as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.install()
        page.goto(world.url)
        with page.expect_response(world.url):
            page.clock.run_for(5000)
        page.wait_for_function("document.title.startsWith('✗')")
        hide(page, hidden=True)
        seen = len(asked)
        page.clock.run_for(600_000)
        assert (seen, len(asked)) == (2, 2)
        with page.expect_response(world.url):
            hide(page, hidden=False)
        page.add_init_script("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
        seen = len(asked)
        page.goto(world.url)  # as a tab that is opened in the background
        page.clock.run_for(600_000)
        assert len(asked) == seen + 1
        with page.expect_response(world.url):
            hide(page, hidden=False)


def hide(page: Page, *, hidden: bool) -> None:
    page.evaluate(
        """(hidden) => {
        Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
        document.dispatchEvent(new Event('visibilitychange')); }""",
        hidden,
    )


def test_the_page_does_not_show_an_unreachable_daemon_as_safe(tmp_path: Path, browser: Browser, warm: Warm) -> None:
    with run_daemon(tmp_path, warm, {"log": ["backup"]}) as world, open_page(browser, world.url) as page:
        expect(page.locator("h1")).to_have_text("✓ All safe", timeout=1000 * WAIT_SECONDS)
        page.context.set_offline(True)
        expect(page.locator("h1")).to_have_text("? Not known: the daemon does not answer", timeout=1000 * WAIT_SECONDS)
        assert page.title().startswith("? Not known")
        page.context.set_offline(False)
        expect(page.locator("h1")).to_have_text("✓ All safe", timeout=1000 * WAIT_SECONDS)
        assert page.title() == "✓ All safe · litelog"
        expect(page.locator("header")).to_have_class("verdict good")


def test_off_loopback_the_browser_asks_for_the_token_and_the_page_keeps_it(
    tmp_path: Path, browser: Browser, warm: Warm
) -> None:
    secret = tmp_path / "token"
    secret.write_text(TOKEN)
    secret.chmod(0o600)
    keys = {"addr": "0.0.0.0:0", "token-file": str(secret)}
    with run_daemon(tmp_path, warm, {"log": ["backup"]}, **keys) as world:
        asking = browser.new_context()
        try:
            answer = asking.new_page().goto(world.url)
        except Error as error:
            assert "ERR_INVALID_AUTH_CREDENTIALS" in str(error)  # noqa: PT017 - a browser with a dialog raises it
        else:
            assert answer is not None
            assert answer.status == 401
        asking.close()
        with open_page(browser, world.url, http_credentials={"username": "anybody", "password": TOKEN}) as page:
            expect(page.locator("h1")).to_have_text("✓ All safe", timeout=1000 * WAIT_SECONDS)
            world.append(2, "log")
            expect(page.locator("[data-label='Next sequence']")).to_have_text("5", timeout=1000 * WAIT_SECONDS)
