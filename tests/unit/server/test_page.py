"""The HTML page at / has its verdict, order, limits and charts. It shows everything from logs and replicas as text."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
pytest.importorskip("jinja2")

from litelog.server.page.chart import HEIGHT, WIDTH, Sample, draw
from litelog.server.page.day import draw_day
from litelog.server.page.filter import MAX_REPLICAS, choose, read_first
from litelog.server.page.page import MAX_REASONS, page_headers, render_page
from litelog.server.page.severity import Level, level_of, level_of_all
from litelog.server.report import (
    FailureReport,
    GenerationReport,
    LogReport,
    Reason,
    ReplicaReport,
    StatusReport,
    WrittenReport,
)
from litelog.server.verdict import Judgement, ReplicaCondition, Verdict
from litelog.server.verdict_history import SLOTS
from tests.builders.child import runs_in_child
from tests.builders.log_builder import make_log
from tests.builders.server_builder import Watched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from litelog.server.page.filter import LogPage

NOW = "2026-11-21T12:00:00.000Z"
GENERATION = "00000002a1b2c3d4"


def reason(kind: str, log: str | None = "/a", replica: str | None = "file:///r", message: str = "why") -> Reason:
    return Reason(kind=kind, log=log, replica=replica, message=message)


def replica_of(**facts: Any) -> ReplicaReport:
    known: dict[str, Any] = {"replica": "file:///r", "phase": "idle", "fencing": "required", **facts}
    return ReplicaReport(**known)


def report_of(logs: Mapping[str, list[ReplicaReport]], reasons: list[Reason] | None = None) -> StatusReport:
    return StatusReport(
        source="daemon",
        litelog="1.2.3",
        time=NOW,
        started="2026-11-21T10:00:00.000Z",
        reasons=reasons or [],
        max_lag_seconds=60.0,
        last_turn_seconds=0.5,
        logs=[LogReport(log=log, replicas=replicas) for log, replicas in logs.items()],
    )


def render(
    logs: Mapping[str, list[ReplicaReport]],
    states: Mapping[tuple[str, str], ReplicaCondition] | None = None,
    reasons: list[Reason] | None = None,
    wanted: str = "",
    choice: LogPage | None = None,
) -> Parsed:
    all_states = {
        (log, each.replica): ReplicaCondition.SAFE for log, replicas in logs.items() for each in replicas
    } | dict(states or {})
    lags = {key: samples(*((float(ago), 70.0) for ago in range(0, 3600, 10))) for key in all_states}
    choice = choice or choose(all_states, wanted, 0)
    html = render_page(report_of(logs, reasons), lags, judged(all_states, reasons or ()), choice, wanted)
    return Parsed(html)


class Parsed(HTMLParser):
    """A page's elements, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._raw = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._raw = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._raw = False
        self.words += [" "] * (tag in ("td", "th", "dt", "dd"))

    def handle_data(self, data: str) -> None:
        if not self._raw:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def judged(
    conditions: Mapping[tuple[str, str], ReplicaCondition], reasons: Sequence[Reason] = (), words: str = "All safe"
) -> Judgement:
    verdicts = [condition.verdict for condition in conditions.values()]
    return Judgement(min(verdicts, key=list(Verdict).index, default=Verdict.SAFE), words, reasons, conditions, ())


@pytest.mark.parametrize("condition", list(ReplicaCondition))
def test_every_condition_has_a_colour_and_a_mark_of_its_severity(condition: ReplicaCondition) -> None:
    level = level_of(condition)
    assert level.mark
    warning = Reason(kind="diverged", verdict="safe", message="why")
    assert level_of_all(judged({("/a", ""): condition}, [warning] * condition.is_warning)) is level
    assert (level is Level.GOOD) == (condition is ReplicaCondition.SAFE)


def test_the_top_shows_the_first_reasons_and_each_replica_its_own() -> None:
    logs = {f"/log{number}": [replica_of()] for number in range(20)}
    reasons = [reason("loop_stopped", None, None, "no turn"), reason("frozen", "/log19", message="torn")]
    reasons += [reason("lag", log, message=f"slow {log}.") for log in logs]
    page = render(logs, reasons=reasons)
    top = page.text.partition("Filter")[0]
    told = [top.index("no turn"), top.index("torn"), top.index("slow /log0.")]
    assert told == sorted(told)
    assert top.count("slow /log") == MAX_REASONS - 2
    assert "slow /log19." not in top
    assert f"and {22 - MAX_REASONS} more" in top
    assert page.text.count("slow /log19.") == 1, "only its replica's row may show it"


def test_the_worst_come_first_and_the_others_in_the_configurations_order() -> None:
    states = {
        ("/a", "x"): ReplicaCondition.SAFE,
        ("/b", "x"): ReplicaCondition.SAFE,
        ("/b", "y"): ReplicaCondition.LATE,
        ("/c", "x"): ReplicaCondition.STARTING,
        ("/d", "x"): ReplicaCondition.FROZEN,
        ("/e", "x"): ReplicaCondition.SAFE,
    }
    choice = choose(states, "", 0)
    assert choice.logs == ("/d", "/b", "/c", "/a", "/e")
    assert (choice.first, choice.matching, choice.total, choice.following) == (0, 5, 5, None)


@pytest.mark.parametrize(
    ("wanted", "logs"),
    [
        ("ORDERS", ("/var/orders",)),
        ("s3://", ("/var/clicks", "/var/orders")),
        (" late ", ("/var/clicks",)),
        ("nothing", ()),
        ("/var", ("/var/clicks", "/var/orders")),
        ("orders" + " " * 300, ("/var/orders",)),
    ],
)
def test_a_filter_looks_at_folders_replicas_and_states(wanted: str, logs: tuple[str, ...]) -> None:
    states = {("/var/orders", "s3://one"): ReplicaCondition.SAFE, ("/var/clicks", "S3://two"): ReplicaCondition.LATE}
    choice = choose(states, wanted, 0)
    assert (choice.logs, choice.matching, choice.total) == (logs, len(logs), 2)


@pytest.mark.parametrize(("logs", "replicas"), [(250, 1), (250, 3), (MAX_REPLICAS, 1), (MAX_REPLICAS + 1, 1)])
def test_every_log_is_on_one_page_and_no_page_holds_too_many(logs: int, replicas: int) -> None:
    states = {
        (f"/{log}", f"file:///{number}"): ReplicaCondition.SAFE for log in range(logs) for number in range(replicas)
    }
    seen: list[str] = []
    first: int | None = 0
    while first is not None:
        choice = choose(states, "", first)
        assert 0 < len(choice.logs) * replicas <= MAX_REPLICAS
        assert choice.first == len(seen)
        seen += choice.logs
        first = choice.following
    assert seen == [f"/{log}" for log in range(logs)]


def test_a_log_of_more_replicas_than_fit_is_shown_alone() -> None:
    states = {("/big", f"file:///{number}"): ReplicaCondition.SAFE for number in range(MAX_REPLICAS + 1)}
    states[("/small", "x")] = ReplicaCondition.SAFE
    assert [choose(states, "", first).logs for first in (0, 1)] == [("/big",), ("/small",)]


@pytest.mark.parametrize(
    ("text", "first"), [("", 0), ("7", 7), ("-1", 0), ("x", 0), ("1e3", 0), ("²", 0), ("9" * 5000, 0)]
)
def test_an_invalid_number_in_a_query_is_ignored(text: str, first: int) -> None:
    assert read_first(text) == first


def test_a_page_after_the_last_one_shows_the_last_log() -> None:
    assert choose({("/a", "x"): ReplicaCondition.SAFE, ("/b", "x"): ReplicaCondition.SAFE}, "", 10**9).logs == ("/b",)
    assert choose({}, "", 5).logs == ()


@pytest.mark.slow
@runs_in_child
def test_a_page_of_many_bad_replicas_stays_small() -> None:
    bad = replica_of(
        lag_seconds=100.0,
        lag_bytes=1,
        errors={"store": 7},
        recent_errors=[FailureReport(time=NOW, kind="store", message="x" * 500, count=1)] * 10,
        recent_generations=[
            GenerationReport(time=NOW, generation=GENERATION, relation="diverged", predecessor=GENERATION, reason="y")
        ]
        * 20,
    )
    logs = {f"/log{number}": [bad] for number in range(MAX_REPLICAS)}
    states = {(f"/log{number}", "file:///r"): ReplicaCondition.LATE for number in range(1000)}
    reasons = [reason("lag", f"/log{number}", message="z" * 500) for number in range(1000)]
    page = render(logs, states, reasons)
    assert len(page.html) < 3 << 20
    assert f"?q=&from={MAX_REPLICAS}" in [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert f"1 to {MAX_REPLICAS} of 1,000 logs, worst first" in page.text


def samples(*points: tuple[float, float]) -> list[Sample]:
    return [Sample(ago, lag, int(lag * 100)) for ago, lag in points]


def bars(path: str) -> list[tuple[int, float]]:
    """(minutes ago, height) of each."""
    found = re.findall(r"M(\d+) \d+v-([\d.]+)h\d+V\d+z", path)
    return [((WIDTH - int(x)) * 60 // WIDTH - 1, float(height)) for x, height in found]


def test_a_chart_has_a_bar_for_each_minute_that_was_measured() -> None:
    chart = draw(samples((3599.0, 10.0), (125.0, 20.0), (121.0, 40.0), (61.0, 0.0), (5.0, 80.0), (0.0, 1.0)), 60.0)
    assert bars(chart.within) == [(59, HEIGHT / 8), (2, HEIGHT / 2), (1, 1.0)]
    assert bars(chart.above) == [(0, float(HEIGHT))]
    assert (chart.limit, chart.peak) == (HEIGHT / 4, "1m20s")
    assert chart.words == ("Lag over the last hour: at most 1m20s (7.8 KiB) now, above max-lag, measured for 59m59s")


def test_a_chart_of_small_lags_reaches_up_to_max_lag() -> None:
    chart = draw(samples((700.0, 6.0), (1.0, 0.0)), 60.0)
    assert (bars(chart.within), chart.above, chart.limit) == ([(11, HEIGHT / 10), (0, 1.0)], "", 0.0)
    assert chart.words == "Lag over the last hour: at most 6.0s (600 B) 11m40s ago, measured for 11m40s"


def test_a_chart_says_that_there_was_no_lag_and_that_nothing_was_measured() -> None:
    assert draw(samples((30.0, 0.0)), 60.0).words == "Lag over the last hour: none, measured for 30.0s"
    nothing = draw([], 60.0)
    assert (nothing.within, nothing.above, nothing.peak) == ("", "", "")
    assert nothing.words == "Lag over the last hour: not measured yet"


def test_a_strip_has_a_bar_for_each_verdict_and_says_how_long_each_held() -> None:
    unknown = [Verdict.UNKNOWN] * (SLOTS - 4)
    strip = draw_day([*unknown, Verdict.SAFE, Verdict.SAFE, Verdict.UNSAFE, Verdict.SAFE])
    assert dict(strip.paths) == {"safe": "M140 10V6H142V10zM143 10V6H144V10z", "unsafe": "M142 10V0H143V10z"}
    assert strip.words == (
        "Last 24 hours, in slots of 10 minutes: unsafe for 10m00s, unknown for 23h20m, safe for 30m00s"
    )


def test_a_replica_is_shown_with_all_that_is_known_of_it() -> None:
    full = replica_of(
        position=f"{GENERATION}/000000000000000a/0000000000000100",
        next=12345,
        lag_seconds=90.0,
        lag_bytes=2048,
        last_snapshot="2026-11-21T11:58:00.000Z",
        last_verified="2026-11-21T09:00:00.000Z",
        anomaly_count=2,
        damaged=["k.wal.lz4"],
        stored_bytes=123_000_000,
        fencing="isolated",
        errors={"store": 1000, "other": 1},
        recent_errors=[FailureReport(time="2026-11-21T11:00:00.000Z", kind="store", message="timed out", count=12)],
        recent_generations=[
            GenerationReport(
                time="2026-11-21T10:00:00.000Z", generation=GENERATION, relation="diverged",
                predecessor="00000001ffffffff", reason="the log was replaced",
            )
        ],
        wal=WrittenReport(objects=3, log_bytes=4096, stored_bytes=100),
        sealed=WrittenReport(objects=1, log_bytes=1 << 20, stored_bytes=100),
    )  # fmt: skip
    reasons = [reason("damaged", "/log", message="a verification found 2 anomalies: x.wal.lz4")]
    reasons.append(reason("archive_failing", "/log", message="sealing failed: cannot seal"))
    text = render({"/log": [full]}, {("/log", "file:///r"): ReplicaCondition.DAMAGED}, reasons).text
    diverged = "began from scratch, since the log was rewound or rewritten"
    for words in (
        "✗ damaged", "1m30s 2.0 KiB", "12,345", "(…a1b2c3d4/a/100)", "2m00s ago", "3h00m ago 2 anomalies",
        "5263.4 : 1", "litelog restore file:///r -o DIR", "117.3 MiB", "k.wal.lz4",
        "a verification found 2 anomalies: x.wal.lz4", "sealing failed: cannot seal",
        f"Generation {GENERATION} {diverged}, 2h00m ago, 1,001 errors", "idle, fencing isolated",
        f"2026-11-21 10:00:00 {GENERATION} {diverged} 00000001ffffffff the log was replaced",
        "2026-11-21 11:00:00 store 12 timed out", "4.0 KiB in 3 WAL segments, 1.0 MiB in 1 sealed",
    ):  # fmt: skip
        assert words in text, words


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}&lt;"


def test_everything_that_is_shown_is_escaped_as_text() -> None:
    names = [name for name, field in ReplicaReport.model_fields.items() if field.annotation in (str, str | None)]
    times = {"last_snapshot", "last_shipped", "last_verified"}
    facts: dict[str, Any] = {name: HOSTILE for name in names if name not in times}
    hostile = replica_of(
        **facts,
        errors={HOSTILE: 1},
        recent_errors=[FailureReport(time=NOW, kind=HOSTILE, message=HOSTILE, count=1)],
        recent_generations=[
            GenerationReport(time=NOW, generation=HOSTILE, relation=HOSTILE, predecessor=HOSTILE, reason=HOSTILE)
        ],
    )
    reasons = [reason("lag", HOSTILE, HOSTILE, HOSTILE), reason("loop_stopped", None, None, HOSTILE)]
    plain = render(
        {"/log": [replica_of(recent_errors=hostile.recent_errors, recent_generations=hostile.recent_generations)]}
    )
    page = render({HOSTILE: [hostile]}, reasons=reasons, wanted=HOSTILE)
    tags = [tag for tag, _ in page.elements]
    assert (tags.count("script"), tags.count("img")) == (1, 0)
    assert set(tags) - {"li", "ul"} <= {tag for tag, _ in plain.elements}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.text.count(HOSTILE) >= 12
    assert HOSTILE in [attributes.get("value") for tag, attributes in page.elements if tag == "input"]
    assert {"style", "src"}.isdisjoint(name for _, attributes in page.elements for name in attributes)


@pytest.mark.slow
def test_lines_break_after_slashes_and_not_in_options() -> None:
    why = reason("fenced", message="s3://b/one/two: <i>/x").model_copy(
        update={"action": "start it with --takeover-now."}
    )
    safe = {("/a", "file:///r"): ReplicaCondition.SAFE}
    report = report_of({"/a": [replica_of()]}, [why])
    html = render_page(report, {}, judged(safe, [why]), choose(safe, "", 0), "")
    assert '<span class="said">s3://b/<wbr>one/<wbr>two: &lt;i&gt;/x</span>' in html
    assert '<span class="todo">start it with <span class="whole">--takeover-now</span>.</span>' in html


def test_links_of_pages_keep_the_filter() -> None:
    states = {(f"/log{number}", "file:///r"): ReplicaCondition.SAFE for number in range(300)}
    choice = choose(states, "LOG", 100)
    page = render({"/log150": [replica_of()]}, states, wanted="LOG", choice=choice)
    assert [attributes["href"] for tag, attributes in page.elements if tag == "a"][:2] == [
        "?q=LOG&from=0",
        "?q=LOG&from=140",
    ]
    assert "101 to 140 of 300 logs that match, worst first" in page.text


@pytest.mark.slow
def test_the_policy_allows_the_pages_own_style_and_script_by_their_hashes() -> None:
    page = render({"/log": [replica_of()]})
    policy = dict(part.strip().split(" ", 1) for part in page_headers()["content-security-policy"].split(";"))
    for tag in ("style", "script"):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page.html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in str(policy)
    assert "://" not in "".join(re.findall(r"(?:href|src|url)\s*[=(]\s*[\"']?([^\"' >)]*)", page.html))


@pytest.mark.slow
def test_it_is_served_with_its_policy_and_filtered(tmp_path: Path) -> None:
    one, two = make_log(tmp_path / "one"), make_log(tmp_path / "two<b>")
    one.roll(3)
    two.roll(5)
    with Watched(tmp_path, [(one, [f"file://{tmp_path}/r1"]), (two, [f"file://{tmp_path}/r2"])]) as watched:
        watched.wait_until_ready()
        answer = watched.ask("/")
        page = Parsed(answer.body.decode())
        assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert page_headers().items() <= answer.headers.items()
        assert page.text.startswith(
            f"✓ All safe · litelog litelog on {socket.gethostname()} ✓ All safe 2 logs, 2 replicas;"
        )
        assert [one.folder in page.text, two.folder in page.text] == [True, True]
        assert "All logs, worst first" in page.text

        def is_measured() -> bool:
            logs = watched.ask("/status?history=1").json["logs"]
            return all((each["replicas"][0]["lag_history"] or [{"seconds_ago": 0}])[0]["seconds_ago"] for each in logs)

        watched.wait_until(is_measured)
        (measured, _) = [
            attributes["aria-label"]
            for tag, attributes in Parsed(watched.ask("/").body.decode()).elements
            if tag == "svg" and (attributes["aria-label"] or "").startswith("Lag")
        ]
        assert measured is not None
        assert re.fullmatch("Lag over the last hour: (none|at most .*), measured for (?!0ms).*", measured)
        found = Parsed(watched.ask(f"/?q={quote('two<B>')}&from=junk").body.decode())
        assert [one.folder in found.text, two.folder in found.text] == [False, True]
        assert "1 to 1 of 1 logs that match" in found.text
        assert "✓ All safe 2 logs, 2 replicas;" in found.text, "the verdict covers all logs"
        assert "No log matches" in Parsed(watched.ask("/?q=nothing").body.decode()).text
