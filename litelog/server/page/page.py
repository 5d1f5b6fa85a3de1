"""The page at /, which shows at a glance whether everything is safe.

It is HTML without external resources. Style and script are inline, and allowed by their hashes only. The script fetches
the page again and replaces what changed; without scripts, the browser reloads the page.
"""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from litelog.dataclass import dataclass
from litelog.server.page.chart import HEIGHT, WIDTH, Sample, draw
from litelog.server.page.day import HEIGHT as DAY_HEIGHT
from litelog.server.page.day import WIDTH as DAY_WIDTH
from litelog.server.page.day import draw_day
from litelog.server.page.filter import MAX_FILTER
from litelog.server.page.severity import Level, level_of, level_of_all
from litelog.server.reasons import quote
from litelog.server.verdict import CONDITIONS, ReplicaCondition
from litelog.server.verdict_history import VerdictHistory
from litelog.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from jinja2 import Template

    from litelog.server.found_reason import FoundReason
    from litelog.server.page.chart import Chart
    from litelog.server.page.day import DayStrip
    from litelog.server.page.filter import LogPage
    from litelog.server.report import ReplicaReport, StatusReport
    from litelog.server.status_view import StatusView
    from litelog.server.verdict import Judgement

    Histories = Mapping[tuple[str, str], Sequence[Sample]]
    """By log and replica's URL; the oldest first."""

REFRESH_SECONDS = 5
PLAIN_REFRESH_SECONDS = 60
"""Seconds between reloads without scripts: rare enough to read the page aloud."""

MAX_REASONS = 8
"""Reasons shown at the top. The rows show all of them."""

OPEN_REASONS = 2
"""Reasons of these that are not folded to a line."""

MAX_DETAILED = 12
"""Replicas on a page that shows the details of each. A page of more has a line for each, and a link to its details."""

_RELATIONS = {
    "first": "is the first",
    "continues": "continues the one before",
    "diverged": "began from scratch, since the log was rewound or rewritten",
    "resumed": "was taken up again",
}

_SLASH = re.compile(r"(?<=[\w.=])/(?=[\w.=])")
"""A slash inside a path. Those of ``s3://`` stay together."""

_OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")

_ICON_COLORS = {
    Level.BAD: "%23b3261e",
    Level.LATE: "%23b3261e",
    Level.WARNING: "%239a6200",
    Level.WAITING: "%235c5c57",
    Level.GOOD: "%231a7f45",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One replica, as a row of the page."""

    report: ReplicaReport
    condition: ReplicaCondition
    level: Level
    chart: Chart
    day: DayStrip
    reasons: list[FoundReason]
    """Those that the top of the page does not show."""
    snapshot: str | None
    """When the newest snapshot was written; None if that is not known."""
    errors: int
    """Number of errors since the daemon started."""
    ratio: float | None
    """Bytes of the log for each stored byte, of what was written since the start; None if nothing was."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Figures of all replicas together."""

    log_bytes: float | None
    """Shipped bytes of the logs a second; None if that is not known yet."""
    records: float | None
    """Shipped records a second; likewise."""
    stored: int
    """Bytes of the objects in all replicas that were counted."""
    uncounted: int
    """Replicas whose objects were not counted yet."""


def read_histories(snapshot: StatusView, logs: Container[str]) -> Histories:
    """The last hour's lag of the replicas of ``logs``."""
    return {
        (status.log, status.replica): [
            Sample(max(0.0, snapshot.now - time), seconds, size) for time, seconds, size in status.meter.history.read()
        ]
        for status in snapshot.statuses
        if status.log in logs and status.meter is not None
    }


def sum_up(snapshot: StatusView, verdicts: VerdictHistory) -> Totals:
    """The figures of all replicas."""
    rate = verdicts.rate
    sizes = [status.stored_bytes for status in snapshot.statuses]
    return Totals(
        log_bytes=None if rate is None else rate.log_bytes,
        records=None if rate is None else rate.records,
        stored=sum(size for size in sizes if size is not None),
        uncounted=sizes.count(None),
    )


def render_page(
    report: StatusReport,
    histories: Histories,
    judgement: Judgement,
    choice: LogPage,
    wanted: str,
    *,
    verdicts: VerdictHistory | None = None,
    totals: Totals | None = None,
) -> str:
    """Render the page.

    ``report`` and ``histories`` cover the logs of ``choice``, ``judgement`` all replicas. ``wanted`` is the filter's
    text. ``verdicts`` are those of the last day.
    """
    now = datetime.fromisoformat(report.time)
    level = level_of_all(judgement)
    reasons = judgement.reasons
    rows = _make_rows(report, histories, judgement, verdicts or VerdictHistory())

    return _load_template().render(
        report=report,
        words=judgement.words,
        level=level,
        icon=_ICON_COLORS[level],
        logs=[(log, rows[log]) for log in choice.logs if log in rows],
        choice=choice,
        replicas=len(judgement.replicas),
        reasons=reasons[:MAX_REASONS],
        open_reasons=OPEN_REASONS,
        word=_name_reason,
        more_reasons=max(0, len(reasons) - MAX_REASONS),
        wanted=wanted[:MAX_FILTER],
        totals=totals,
        detailed=sum(map(len, rows.values())) <= MAX_DETAILED,
        show=lambda log: "?" + urlencode({"q": log[-MAX_FILTER:]}),
        age=lambda moment: _format_age((now - datetime.fromisoformat(moment)).total_seconds()),
        link=lambda first: "?" + urlencode({"q": wanted[:MAX_FILTER], "from": first}),
    )


@cache
def page_headers() -> dict[str, str]:
    """Headers that restrict the page: it may run its own script, and send requests to its own server."""
    style, script = (_hash(_read(name)) for name in ("page.css", "page.js"))
    policy = (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    return {
        "cache-control": "no-store",
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }


def _name_reason(reason: FoundReason) -> str:
    """Its effect on the replica, in a word or two."""
    condition = CONDITIONS.get(reason.kind)
    return "not replicated" if condition is None else condition.value


def _make_rows(
    report: StatusReport, histories: Histories, judgement: Judgement, verdicts: VerdictHistory
) -> dict[str, list[Row]]:
    reasons: dict[tuple[str | None, str | None], list[FoundReason]] = {}
    for reason in judgement.reasons[MAX_REASONS:]:
        reasons.setdefault((reason.log, reason.replica), []).append(reason)
    max_lag = report.max_lag_seconds or 0.0
    return {
        log.log: [
            _make_row(
                each,
                judgement.replicas.get((log.log, each.replica), ReplicaCondition.UNKNOWN),
                draw([*histories.get((log.log, each.replica), ()), *_sample_now(each)], max_lag),
                draw_day(verdicts.read((log.log, each.replica))),
                reasons.get((log.log, each.replica), []),
            )
            for each in log.replicas
        ]
        for log in report.logs
    }


def _make_row(
    report: ReplicaReport, condition: ReplicaCondition, chart: Chart, day: DayStrip, reasons: list[FoundReason]
) -> Row:
    written = [each for each in (report.wal, report.sealed) if each is not None]
    stored = sum(each.stored_bytes for each in written)
    return Row(
        day=day,
        ratio=sum(each.log_bytes for each in written) / stored if stored else None,
        report=report,
        condition=condition,
        level=level_of(condition),
        chart=chart,
        reasons=reasons,
        snapshot=report.last_snapshot,
        errors=sum(report.errors.values()),
    )


def _sample_now(replica: ReplicaReport) -> list[Sample]:
    """The current lag, which the history does not contain yet."""
    if replica.lag_seconds is None or replica.lag_bytes is None:
        return []
    return [Sample(0.0, replica.lag_seconds, replica.lag_bytes)]


def _shorten(position: str) -> str:
    """A position without leading zeros: the last digits of its generation, index and offset."""
    generation, *numbers = position.split("/")
    return "/".join([f"…{generation[-8:]}", *(number.lstrip("0") or "0" for number in numbers)])


def _format_age(seconds: float) -> str:
    """An age in whole seconds, or in larger units."""
    return format_duration(seconds) if seconds >= 60 else f"{max(0, int(seconds))}s"


def _fold(text: str) -> Markup:
    """Format a text for people. Its lines may break after a slash of a path, but not inside an option."""
    folded = _SLASH.sub("/<wbr>", str(escape(text)))
    return Markup(_OPTION.sub(r'<span class="whole">\g<0></span>', folded))  # noqa: S704 - escaped above


@cache
def _load_template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "age": _format_age,
        "fold": _fold,
        "duration": lambda seconds: format_duration(seconds) if seconds else "0s",
        "size": format_size,
        "number": lambda number: f"{number:,}",
        "short": _shorten,
        "quote": quote,
        "rate": lambda number: f"{number:,.0f}" if number >= 10 or not number else f"{number:.1f}",
        "relation": lambda relation: _RELATIONS.get(relation, relation),
    }
    style, script = _read("page.css"), _read("page.js")
    environment.globals |= {
        "style": Markup(style),  # noqa: S704 - files of this package
        "script": Markup(script),  # noqa: S704
        "build": _hash(style + script + _read("page.html"))[-16:],
        "refresh": REFRESH_SECONDS,
        "plain_refresh": PLAIN_REFRESH_SECONDS,
        "max_filter": MAX_FILTER,
        "day_width": DAY_WIDTH,
        "day_height": DAY_HEIGHT,
        "chart_width": WIDTH,
        "chart_height": HEIGHT,
    }
    return environment.from_string(_read("page.html"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
