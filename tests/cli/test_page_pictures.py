"""Pictures of the page in the states that a daemon can be in, in a real Chromium: `.figures/page-<state>-<window>.png`.

Each one fits its window, breaks no rule of accessibility, and says in its first line what is wrong.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright")
pytest.importorskip("axe_playwright_python")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from litelog.replicator.status import NotReplicated, ReplicaStatus
from litelog.server.service import Service, ServiceSettings
from litelog.server.status_view import HealthThresholds, StatusView
from litelog.server.verdict import judge
from litelog.server.verdict_history import SLOT_SECONDS, SLOTS, VerdictHistory
from litelog.shipping.counters import DurableCounts, GenerationStart, ReplicaCounters
from litelog.shipping.divergence import Divergence
from litelog.shipping.lag import Lag, LagHistory
from litelog.system.clock import SystemClock
from tests.builders.daemon_builder import SilentListener
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Route

    from litelog.replicator.barrier import Barrier

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FIGURES = Path(__file__).resolve().parents[2] / ".figures"
CLOCK = SystemClock()
MAX_LAG = 60.0
DAMAGED = "generations/00000002a1b2c3d4/segments/0000000000000007.segment.lz4"

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed"),
    pytest.mark.xdist_group("chromium"),
]


@dataclass
class Posing:
    """A daemon whose replicas have the statuses that a test gives them."""

    statuses: list[ReplicaStatus]
    lacking: tuple[NotReplicated, ...] = ()
    opened: bool = True
    started: float = field(default_factory=CLOCK.monotonic)

    @property
    def last_turn(self) -> float:
        return CLOCK.monotonic()

    def is_ready(self) -> bool:
        return True

    def status(self) -> list[ReplicaStatus]:
        return self.statuses

    def not_replicated(self) -> tuple[NotReplicated, ...]:
        return self.lacking

    def measure(self) -> None:
        pass

    def barrier(self, log: str | None, replica: str | None, timeout: float) -> Barrier:
        raise NotImplementedError


def ago(seconds: float) -> int:
    return CLOCK.now() - int(seconds * 1_000_000)


def make_counters(log_bytes: int = 3 << 30) -> ReplicaCounters:
    counters = ReplicaCounters(SilentListener(), CLOCK)
    counters._counts = DurableCounts(
        86_212, log_bytes, log_bytes // 4, 192, log_bytes, log_bytes // 5, 12, ago(0.4), ago(5_000)
    )
    counters._generations.append(GenerationStart(ago(700_000), "00000002a1b2c3d4", "continues", "00000001", None))
    return counters


def make_status(log: str, replica: str, number: int = 0, peak: float = 2.0, **facts: Any) -> ReplicaStatus:
    """The status of a healthy replica."""
    history, now = LagHistory(), CLOCK.monotonic()
    for sample in range(360):
        lag = (sample * 7 + number) % 11 / 10 + (peak if sample % 90 > 80 else 0.0)
        history.add_if_due(now - 3600 + sample * 10, Lag(int(lag * 100_000), lag))
    known: dict[str, Any] = {
        "fencing": "required",
        "phase": "idle",
        "position": f"00000002a1b2c3d4/{7 + number:016x}/{123_456 * (number + 1):016x}",
        "sequence": 1_234_567 + 98_765 * number,
        "error": None,
        "failures": 0,
        "synced": True,
        "snapshot": "generations/00000002a1b2c3d4/snapshots/0000000000000007.snapshot.lz4",
        "last_verified": ago(7_200 + 600 * number),
        "stored_bytes": (number + 1) * 731_000_000,
        "opened_seconds": 700_000.0,
        "counters": make_counters(),
        "meter": SimpleNamespace(history=history),
        **facts,
    }
    return ReplicaStatus(log, replica, **known)


def make_statuses(count: int = 7) -> list[ReplicaStatus]:
    names = ("orders", "payments", "clicks", "audit", "inventory", "sessions", "shipments", "ledger", "mail", "search")
    pairs = [
        (f"/srv/{name}{part or ''}/log", url)
        for part in range(count)
        for name in names
        for url in (f"s3://acme-logs-eu/{name}{part or ''}", f"file:///mnt/backup/{name}{part or ''}")
    ]
    return [make_status(log, url, number) for number, (log, url) in enumerate(pairs[:count])]


def make_late() -> list[ReplicaStatus]:
    statuses = make_statuses()
    error = (
        "put generations/00000002a1b2c3d4/wal/0000000000000008/00000000000f1206.wal.lz4: no answer from "
        "https://acme-logs-eu.s3.eu-west-1.amazonaws.com after 10 s"
    )
    late = {"lag_seconds": 754.0, "lag_bytes": 73_400_320, "failing_seconds": 750.0, "failures": 41, "error": error}
    statuses[0] = make_status(statuses[0].log, statuses[0].replica, 0, 700.0, **late, phase="backing off")
    assert statuses[0].counters is not None
    statuses[0].counters._errors["store"] = 41
    return statuses


def make_damaged() -> list[ReplicaStatus]:
    statuses = make_statuses()
    keys = (DAMAGED, DAMAGED.replace("07.", "08."))
    statuses[2] = replace(statuses[2], anomalies=2, damaged=keys, damaged_since=ago(40_000))
    return statuses


def make_fenced() -> list[ReplicaStatus]:
    statuses = make_statuses()
    error = (
        f"{statuses[4].replica}: generation 00000002a1b2c3d4 was succeeded by 00000003b2c3d4e5: owner 9f86d081 on "
        "db-2 took the replica over at 2026-11-23 18:28:52Z"
    )
    fenced = {"phase": "fenced", "error": error, "failures": 1, "failing_seconds": 3_900.0, "synced": False}
    statuses[4] = replace(statuses[4], **fenced, lag_seconds=3_900.0, lag_bytes=812_000_000)
    return statuses


def make_diverged() -> list[ReplicaStatus]:
    statuses = make_statuses()
    reason = "log segment 00000000000000000000.log was rewritten at offset 169968"
    found = Divergence("00000002a1b2c3d4", "0000000163b83844", ago(5_400), reason, 1_240_000)
    statuses[3] = replace(statuses[3], diverged=found)
    return statuses


def make_waiting() -> list[ReplicaStatus]:
    statuses = make_statuses()
    error = f"{statuses[6].log}: no such folder"
    new = {"position": None, "sequence": None, "snapshot": None, "stored_bytes": None, "last_verified": None}
    waiting = {"synced": False, "source_missing": True, "failing_seconds": 20.0, "phase": "backing off"}
    meter = SimpleNamespace(history=LagHistory())
    statuses[6] = replace(statuses[6], **new, **waiting, error=error, counters=None, meter=meter, opened_seconds=20.0)
    return statuses


def make_twenty() -> list[ReplicaStatus]:
    """Twenty replicas with four reasons."""
    statuses = make_statuses(20)
    for number, found in ((0, make_late()[0]), (2, make_damaged()[2]), (4, make_fenced()[4]), (3, make_diverged()[3])):
        statuses[number] = found
    statuses[0] = replace(statuses[0], failing_seconds=0.0, error=None, phase="syncing")
    return statuses


def make_thousand() -> list[ReplicaStatus]:
    statuses = [
        make_status(f"/srv/tenants/{number:04}/events", f"s3://acme-logs-eu/{number:04}", number % 50)
        for number in range(1000)
    ]
    for number in (137, 500, 642):
        statuses[number] = replace(statuses[number], lag_seconds=80.0 + number, lag_bytes=number << 16)
    return statuses


@dataclass(frozen=True)
class Case:
    statuses: Callable[[], list[ReplicaStatus]]
    headline: str


CASES = {
    "well": Case(make_statuses, "✓ All safe"),
    "late": Case(make_late, "▲ Late: 1 of 7 replicas late"),
    "damaged": Case(make_damaged, "✗ Not safe: 1 of 7 replicas damaged"),
    "fenced": Case(make_fenced, "✗ Not safe: 1 of 7 replicas fenced"),
    "diverged": Case(make_diverged, "! Safe, with a warning: 1 of 7 replicas diverged"),
    "waiting": Case(make_waiting, "… Waiting: the log of 1 of 7 replicas does not exist yet"),
    "twenty": Case(make_twenty, "✗ Not safe: 1 of 20 replicas fenced, 1 damaged, 1 late"),
    "thousand": Case(make_thousand, "▲ Late: 3 of 1,000 replicas late"),
}
WINDOWS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "print": {"viewport": {"width": 794, "height": 1123}, "color_scheme": "light"},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def remember_day(state: str, statuses: list[ReplicaStatus]) -> None:
    """Write a day into the state folder: mostly safe, with a late hour, a gap and the present condition."""
    history, now, time_now = VerdictHistory(state), CLOCK.monotonic(), CLOCK.now()
    well = [make_status(each.log, each.replica) for each in statuses[:50]]
    late = [replace(each, lag_seconds=100.0) for each in well]
    for slot in range(SLOTS - 4, -1, -1):
        if 60 < slot < 66:
            continue  # no daemon ran
        shown = statuses if slot < 9 else late[:5] + well[5:] if 30 < slot < 36 else well
        seconds = slot * SLOT_SECONDS
        moment = time_now - seconds * 1_000_000
        view = StatusView(shown, now, moment, now, now, now)
        history.record(view, judge(view, HealthThresholds(MAX_LAG)).replicas)


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Serve a case, and return its URL."""
    services: dict[str, Service] = {}

    def start(name: str) -> str:
        if name not in services:
            state, statuses = str(tmp_path_factory.mktemp(name)), CASES[name].statuses()
            remember_day(state, statuses)
            service = Service(
                Posing(statuses),
                ServiceSettings(MAX_LAG, "127.0.0.1:0", config_file="/etc/litelog.yml", state_dir=state),
            )
            services[name] = service.__enter__()
        return f"http://{services[name].address}/"

    yield start
    for service in services.values():
        service.__exit__(None, None, None)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", CASES)
def test_every_state_fits_its_window_and_its_headline_names_the_problem(
    serve: Callable[[str], str], browser: Browser, name: str, window: str
) -> None:
    url, context = serve(name), browser.new_context(**WINDOWS[window])
    page = context.new_page()
    if window == "print":
        page.emulate_media(media="print")
    page.goto(url)
    expect(page.locator("h1")).to_have_text(CASES[name].headline, timeout=1000 * WAIT_SECONDS)
    FIGURES.mkdir(exist_ok=True)
    page.screenshot(path=FIGURES / f"page-{name}-{window}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if window != "print":
        found = Axe().run(page).response["violations"]
        assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == []
    context.close()


def test_twenty_replicas_below_four_reasons_fit_a_screen(serve: Callable[[str], str], browser: Browser) -> None:
    context = browser.new_context(**WINDOWS["light"])
    page = context.new_page()
    page.goto(serve("twenty"))
    expect(page.locator("header .reasons > li")).to_have_count(4)
    assert page.locator("tr.replica").count() == 20
    assert page.locator("tr.replica").last.evaluate("(row) => row.getBoundingClientRect().bottom") <= 900
    folded = page.locator("header .reasons details")
    expect(folded.locator("summary")).to_have_text([re.compile("late.*/srv/orders"), re.compile("diverged.*payments")])
    expect(page.locator("header .todo:visible")).to_have_count(2)
    folded.first.locator("summary").click()
    expect(folded.first.locator("code")).to_have_text("litelog check s3://acme-logs-eu/orders")
    with page.expect_response(page.url):
        pass
    expect(folded.first.locator("code")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.locator("header .todo:visible")).to_have_count(4)
    context.close()


def test_one_of_a_thousand_logs_is_found_by_its_name_or_state(serve: Callable[[str], str], browser: Browser) -> None:
    context = browser.new_context(**WINDOWS["light"])
    page = context.new_page()
    page.goto(serve("thousand"))
    expect(page.locator(".found")).to_have_text("1 to 40 of 1,000 logs, worst first")
    worst = [f"/srv/tenants/{number}/events" for number in ("0137", "0500", "0642", "0000")]
    assert page.locator("h2").all_inner_texts()[:4] == worst
    for wanted, found in (("0777", 1), ("late", 3)):
        page.get_by_label("Filter").fill(wanted)
        expect(page.locator("tr.replica")).to_have_count(found, timeout=1000 * WAIT_SECONDS)
        expect(page.locator("h1")).to_have_text(CASES["thousand"].headline)
    context.close()


def test_an_answer_that_arrives_while_somebody_types_does_not_stop_the_filter(
    serve: Callable[[str], str], browser: Browser
) -> None:
    context = browser.new_context(**WINDOWS["light"])
    page = context.new_page()
    page.goto(serve("thousand"))
    held: list[Route] = []
    page.route("**/?q=late", lambda route: held.append(route))  # noqa: PLW0108 - it looks at the function
    with page.expect_request("**/?q=late"):
        page.get_by_label("Filter").fill("late")
    page.get_by_label("Filter").fill("0777")
    held[0].continue_()
    expect(page.locator("tr.replica")).to_have_count(1, timeout=1000 * WAIT_SECONDS)
    context.close()
