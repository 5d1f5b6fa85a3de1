"""One verdict everywhere: each state of a daemon gives the same answer on the page, at /healthz, in ``litelog status``,
in the metrics, in the alerts and by the heartbeat."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
pytest.importorskip("jinja2")
pytest.importorskip("boto3")

from prometheus_client.parser import text_string_to_metric_families

from litelog.objects.position import Generation, Position
from litelog.replicator.status import NotReplicated, ReplicaStatus
from litelog.server.report import Reason
from litelog.server.service import Service, ServiceSettings
from litelog.server.status_view import HealthThresholds, StatusView
from litelog.server.verdict import CONDITIONS, ReplicaCondition, Verdict, judge
from litelog.shipping.divergence import Divergence
from litelog.system.clock import SystemClock
from litelog_cli.verbs.status import status as status_verb
from tests.builders.servers import Answer, ScriptedServer
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.replicator.barrier import Barrier

ROOT = Path(__file__).resolve().parents[3]
RULES = yaml.safe_load((ROOT / "etc" / "prometheus-alerts.yml").read_text())["groups"][0]["rules"]
LOG, URL = "/var/log/orders", "s3://bucket/the orders"
GENERATION = "00000001a1b2c3d4"
POSITION = Position(Generation(GENERATION), 0, 0x100)
HOUR = 3600.0


def replica(url: str = URL, log: str = LOG, **facts: Any) -> ReplicaStatus:
    known: dict[str, Any] = {
        "fencing": "required", "phase": "idle", "position": POSITION, "sequence": 7, "error": None, "failures": 0,
        "synced": True, "opened_seconds": HOUR, **facts,
    }  # fmt: skip
    return ReplicaStatus(log=log, replica=url, **known)


def diverged(hours: float) -> Divergence:
    time = SystemClock().now() - int(hours * HOUR * 1e6)
    return Divergence("00000002a1b2c3d4", GENERATION, time, "a commit at offset 169968 was rewritten", 20_000)


@dataclass
class Daemon:
    """A daemon in a given state."""

    statuses: Sequence[ReplicaStatus] = ()
    lacking: Sequence[tuple[str, float]] = ()
    """Logs that are not replicated, and for how long."""
    still: float = 0.0
    """How long the main loop has stood still."""
    opened: bool = True
    ready: bool = True
    clock: SystemClock = field(default_factory=SystemClock)

    @property
    def last_turn(self) -> float:
        return self.clock.monotonic() - self.still

    def is_ready(self) -> bool:
        return self.ready

    def status(self) -> list[ReplicaStatus]:
        return list(self.statuses)

    def not_replicated(self) -> tuple[NotReplicated, ...]:
        now = self.clock.monotonic()
        return tuple(NotReplicated(log, "no such format", now - age) for log, age in self.lacking)

    def measure(self) -> None: ...

    def barrier(self, log: str | None, replica: str | None, timeout: float) -> Barrier:
        raise NotImplementedError


@dataclass(frozen=True)
class Case:
    """A state, and the answers that every outlet must give in it."""

    name: str
    daemon: Daemon
    verdict: str
    kinds: tuple[str, ...]
    words: str
    condition: str | None = None
    names: str = ""
    """The object, generation or place that the reason names."""
    command: str | None = None

    @property
    def is_well(self) -> bool:
        return self.verdict in ("safe", "unknown")


WITHOUT_TIME = ("lost", "archive_failing", "checkpoint_failing", "verify_failing", "locks_failing", "source_unreadable")
"""The kinds of reasons that do not have to say since when."""
Q = "'s3://bucket/the orders'"
GONE = {"phase": "backing off", "error": f"{LOG}: no such folder", "source_missing": True}
KEY = "generations/00000001a1b2c3d4/wal/0000000000000000/0000000000000100.wal.lz4"
CASES = [
    Case("safe", Daemon([replica()]), "safe", (), "All safe", "safe"),
    Case("no log yet", Daemon(), "unknown", (), "No log has been found yet"),
    Case("nothing opened", Daemon(opened=False, ready=False), "unknown", ("not_synced",), "Starting: no replica"),
    Case(
        "starting", Daemon([replica(synced=False, position=None, opened_seconds=5.0)], ready=False), "unknown",
        ("not_synced",), "Starting: 1 of 1 replica not synced yet", "starting",
    ),
    Case(
        "never synced", Daemon([replica(synced=False, position=None)], ready=False), "unsafe", ("never_synced",),
        "Not safe: 1 of 1 replica never synced", "never synced", URL, f"litelog check {Q}",
    ),
    Case(
        "not synced since the start", Daemon([replica(synced=False)], ready=False), "late", ("not_synced_for_long",),
        "Late: 1 of 1 replica late", "late", URL, f"litelog check {Q}",
    ),
    Case(
        "waiting for a folder", Daemon([replica(position=None, synced=False, failing_seconds=5.0, **GONE)]), "unknown",
        ("waiting",), "Waiting: the log of 1 of 1 replica does not exist yet", "waiting", LOG, f"ls -ld {LOG}",
    ),
    Case(
        "waiting for a folder in vain", Daemon([replica(position=None, synced=False, failing_seconds=HOUR, **GONE)]),
        "unsafe", ("never_synced",), "Not safe: 1 of 1 replica never synced", "never synced", LOG, f"ls -ld {LOG}",
    ),
    Case(
        "the folder vanished", Daemon([replica(failing_seconds=HOUR, **GONE)]), "late", ("failing",),
        "Late: 1 of 1 replica failing", "failing", LOG, f"ls -ld {LOG}",
    ),
    Case(
        "late", Daemon([replica(lag_seconds=90.0, lag_bytes=4096), replica("file:///well")]), "late", ("lag",),
        "Late: 1 of 2 replicas late", "late", URL, f"litelog check {Q}",
    ),
    Case(
        "failing", Daemon([replica(phase="backing off", error="put: timed out", failures=9, failing_seconds=90.0)]),
        "late", ("failing",), "Late: 1 of 1 replica failing", "failing", "put: timed out", f"litelog check {Q}",
    ),
    Case(
        "damaged", Daemon([replica(anomalies=2, damaged=(KEY, "x"), damaged_since=1_795_000_000_000_000)]), "unsafe",
        ("damaged",), "Not safe: 1 of 1 replica damaged", "damaged", KEY, f"litelog verify {Q}",
    ),
    Case(
        "lost", Daemon([replica(lost="the replica lost log segments up to index 3")]), "unsafe", ("lost",),
        "Not safe: 1 of 1 replica damaged", "damaged", "up to index 3", f"litelog forget {LOG} {Q}",
    ),
    Case(
        "fenced", Daemon([replica(phase="fenced", error=f"{URL}: owner 12 on far has it", failing_seconds=60.0)]),
        "unsafe", ("fenced",), "Not safe: 1 of 1 replica fenced", "fenced",
        "fenced: another owner writes there: owner 12 on far has it", f"litelog generations {Q}",
    ),
    Case(
        "frozen", Daemon([replica(phase="frozen", error="0.log: corrupt commit at offset 7", failing_seconds=60.0)]),
        "unsafe", ("frozen",), "Not safe: 1 of 1 replica frozen", "frozen", "0.log: corrupt commit at offset 7",
        f"litelog verify {Q} --against {LOG}",
    ),
    Case(
        "refused", Daemon([replica(phase="refused", error="another log's replica", failing_seconds=60.0)]), "unsafe",
        ("refused",), "Not safe: 1 of 1 replica refused", "refused", "another log's", f"litelog check {Q}",
    ),
    Case(
        "the final sync failed", Daemon([replica(phase="failed", error="timed out", failing_seconds=1.0)]), "unsafe",
        ("failed",), "Not safe: 1 of 1 replica failed", "failed", "timed out", f"litelog replicate --once {LOG} {Q}",
    ),
    Case(
        "stalled", Daemon([replica()], still=HOUR), "unsafe", ("loop_stopped",), "Not safe: the daemon has stalled",
        "stalled", "main loop", "systemctl restart litelog",
    ),
    Case(
        "not replicated at first", Daemon([replica()], lacking=[("/var/log/clicks", 5.0)]), "unknown",
        ("not_replicated",), "Starting: 1 log not opened yet", "safe", "/var/log/clicks", "ls -ld /var/log/clicks",
    ),
    Case(
        "not replicated", Daemon([replica()], lacking=[("/var/log/clicks", HOUR)]), "unsafe", ("not_replicated",),
        "Not safe: 1 not replicated", "safe", "/var/log/clicks", "ls -ld /var/log/clicks",
    ),
    Case(
        "diverged", Daemon([replica(diverged=diverged(1))]), "safe", ("diverged",),
        "Safe, with a warning: 1 of 1 replica diverged", "diverged", GENERATION, f"litelog dismiss {LOG} {Q}",
    ),
    Case("diverged two days ago", Daemon([replica(diverged=diverged(48))]), "safe", (), "All safe", "safe"),
    Case(
        "sealing fails", Daemon([replica(archive_error="put: denied"), replica("file:///well")]), "safe",
        ("archive_failing",), "Safe, with a warning: 1 of 2 replicas troubled", "troubled", "put: denied",
        f"litelog check {Q}",
    ),
    Case(
        "a checkpoint cannot be written", Daemon([replica(checkpoint_error="put: denied")]), "safe",
        ("checkpoint_failing",), "Safe, with a warning: 1 of 1 replica troubled", "troubled", "put: denied",
        f"litelog check {Q}",
    ),
    Case(
        "locks cannot be extended", Daemon([replica(lock_error="lock: denied")]), "safe", ("locks_failing",),
        "Safe, with a warning: 1 of 1 replica troubled", "troubled", "lock: denied", f"litelog check {Q}",
    ),
    Case(
        "verifying fails", Daemon([replica(verify_error="list: denied")]), "safe", ("verify_failing",),
        "Safe, with a warning: 1 of 1 replica troubled", "troubled", "list: denied", f"litelog verify {Q}",
    ),
    Case(
        "the folder cannot be read", Daemon([replica(source_error="Permission denied")]), "safe",
        ("source_unreadable",), "Safe, with a warning: 1 of 1 replica troubled", "troubled", "Permission denied",
        f"ls -l {LOG}",
    ),
    Case(
        "several at once",
        Daemon([replica("file:///1", lag_seconds=90.0), replica("file:///2", anomalies=1), replica(phase="fenced")]),
        "unsafe", ("fenced", "damaged", "lag"), "Not safe: 1 of 3 replicas fenced, 1 damaged, 1 late",
    ),
]  # fmt: skip


def ask(service: Service, path: str) -> tuple[int, str]:
    import http.client

    assert service.address is not None
    connection = http.client.HTTPConnection("127.0.0.1", service.address.port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def ask_command(addr: str) -> int:
    """The exit code of ``litelog status``."""
    assert status_verb.callback is not None
    code: int = status_verb.callback(
        place=None, from_replica=False, config_file=None, addr=addr, state_dir=None, as_json=False
    )
    return code


def fires(rule: str, samples: dict[str, float]) -> bool:
    """Whether an alert of the form ``metric == number`` or ``metric > number`` fires."""
    (expression,) = (each["expr"] for each in RULES if each["alert"] == rule)
    found = re.fullmatch(r"(\w+) (==|>) (\d+)", expression)
    assert found, expression
    value, number = samples[found[1]], float(found[3])
    return value == number if found[2] == "==" else value > number


def check_status(case: Case, report: dict[str, Any]) -> None:
    """The status as JSON."""
    assert (report["verdict"], report["healthy"]) == (case.verdict, case.is_well)
    assert tuple(reason["kind"] for reason in report["reasons"]) == case.kinds
    assert report["words"].startswith(case.words)
    if case.condition is not None:
        assert report["logs"][0]["replicas"][0]["condition"] == case.condition
    if case.command is not None:
        reason = report["reasons"][0]
        assert reason["command"] == case.command
        assert case.names in f"{reason['message']} {reason['object']} {reason['action']}"
        assert reason["since"] or reason["kind"] in WITHOUT_TIME


def check_probes(case: Case, service: Service) -> None:
    code, body = ask(service, "/healthz")
    assert (code, json.loads(body)["verdict"]) == (200 if case.is_well else 503, case.verdict)
    assert ask(service, "/readyz")[0] == (200 if case.daemon.ready and not case.daemon.still else 503)
    assert ask(service, "/livez")[0] == (503 if case.daemon.still else 200)


def check_command(case: Case, service: Service, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask_command(str(service.address)) == (0 if case.is_well else 1)
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == words
    if case.command is not None:
        assert f"  $ {case.command}\n" in printed


def check_page(case: Case, page: str, words: str) -> None:
    levels = {"unsafe": "bad", "late": "late", "unknown": "waiting"}
    level = levels.get(case.verdict, "warning" if case.kinds else "good")
    assert f'<span id="words">{words}</span>' in page
    assert f'<header class="verdict {level}">' in page


def check_metrics(case: Case, metrics: str) -> None:
    """The metrics, and the alerts that they fire."""
    samples = [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]
    of_daemon = {sample.name: sample.value for sample in samples if not sample.labels}
    numbers = {"safe": 0, "unknown": 1, "late": 2, "unsafe": 3}
    assert (of_daemon["litelog_verdict"], of_daemon["litelog_healthy"]) == (numbers[case.verdict], case.is_well)
    assert fires("LitelogUnsafe", of_daemon) == (case.verdict == "unsafe")
    assert fires("LitelogWarning", of_daemon) == (case.verdict == "safe" and bool(case.kinds))
    of_replicas = [sample.value for sample in samples if sample.name == "litelog_replica_verdict"]
    (late,) = (each["expr"] for each in RULES if each["alert"] == "LitelogLate")
    assert late == "litelog_replica_verdict == 2"
    assert (case.verdict == "late") <= (2 in of_replicas)


def check_heartbeat(case: Case, service: Service, monitor: ScriptedServer) -> None:
    def beats() -> dict[str, int]:
        found: dict[str, int] = json.loads(ask(service, "/status")[1])["heartbeat"]
        return found

    wait_until(lambda: beats()["succeeded" if case.verdict == "safe" else "withheld"] > 0, why=beats)
    assert (len(monitor.requests) > 0) == (case.verdict == "safe")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_outlet_gives_one_verdict(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(lambda request: Answer()) as monitor:
        settings = ServiceSettings(60.0, "127.0.0.1:0", heartbeat_url=monitor.endpoint, heartbeat_interval=0.02)
        with Service(case.daemon, settings) as service:
            report = json.loads(ask(service, "/status")[1])
            check_status(case, report)
            check_probes(case, service)
            check_command(case, service, report["words"], capsys)
            check_page(case, ask(service, "/")[1], report["words"])
            check_metrics(case, ask(service, "/metrics")[1])
            check_heartbeat(case, service, monitor)


def view(*statuses: ReplicaStatus, **facts: Any) -> StatusView:
    return StatusView(statuses, 1000.0, SystemClock().now(), 1000.0, 1000.0, 1000.0, **facts)


def test_every_kind_of_reason_occurs_in_the_table_and_is_documented() -> None:
    described = Reason.model_fields["kind"].description or ""
    occurring = {kind for case in CASES for kind in case.kinds}
    without_daemon = {"no_daemon", "unreadable"}
    elsewhere = {"status_stalled", "measuring_stalled"}  # test_daemon_view.py
    assert set(CONDITIONS) - occurring == without_daemon | elsewhere
    assert [kind for kind in (*CONDITIONS, "not_replicated") if kind not in described] == []


def test_without_a_daemon_only_the_kept_state_is_judged() -> None:
    offline = {"phase": "unknown", "synced": False, "opened_seconds": 0.0}
    rules = HealthThresholds(0.0)
    nothing = judge(view(replica(**offline), is_live=False), rules)
    assert (nothing.verdict, nothing.words) == (Verdict.UNKNOWN, "Not known: no daemon was asked")
    assert nothing.replicas == {(LOG, URL): ReplicaCondition.UNKNOWN}
    damaged = judge(view(replica(anomalies=1, **offline), is_live=False), rules)
    assert (damaged.verdict, [each.kind for each in damaged.reasons]) == (Verdict.UNSAFE, ["damaged", "no_daemon"])
    never = judge(view(replica(**offline, position=None), is_live=False), rules)
    assert (never.verdict, never.replicas[LOG, URL]) == (Verdict.UNSAFE, ReplicaCondition.NEVER_SYNCED)
    assert never.reasons[0].command == f"litelog forget {LOG} '{URL}'"
    unread = judge(view(replica(**{**offline, "error": "denied"}), is_live=False), rules)
    assert (unread.verdict, unread.replicas[LOG, URL]) == (Verdict.UNSAFE, ReplicaCondition.UNREADABLE)


@pytest.mark.slow
def test_a_log_whose_name_is_not_utf_8_gets_its_condition() -> None:
    found = judge(view(replica(log="/\udcff", lag_seconds=3600.0)), HealthThresholds(60.0))
    assert found.replicas == {("/\udcff", URL): ReplicaCondition.LATE}
    assert [each.log for each in found.reasons] == ["/\\udcff"]


def test_the_start_of_a_reason_is_a_wall_clock_time() -> None:
    (reason,) = judge(view(replica(lag_seconds=3600.0)), HealthThresholds(60.0)).reasons
    now = SystemClock().now()
    assert reason.since is not None
    from datetime import datetime

    assert now / 1e6 - datetime.fromisoformat(reason.since).timestamp() == pytest.approx(3600, abs=30)
