"""Verification in the background: its times, its rate, its reports; shipping never waits for it."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from litelog.config import make_config
from litelog.errors import ConfigError, StoreError
from litelog.replicator import Replicator
from litelog.stores.checking_store import CheckingStore
from litelog.stores.metered_store import MeteredStore, RequestMeter
from litelog.stores.retrying_store import RetryingStore
from litelog.stores.throttled_store import LISTED_BYTES, REQUEST_BYTES, ThrottledStore
from litelog.verify.findings import Anomalies, AnomalyKind, Findings, VerifyStoppedError, Watch
from litelog.verify.scrub import FILE, FIRST_SHARE, Scrub, ScrubSettings
from litelog.verify.versions import check_versions
from tests.builders.log_builder import make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.replica_builder import FORMAT
from tests.builders.stores import CountingStore
from tests.builders.verify_helper import everything, store_of
from tests.builders.versioned_store import VersionedStore
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.config.models import Config
    from litelog.objects.claim import Claim
    from litelog.shipping.events import ScrubFinished, SnapshotWritten, WalSegmentShipped
    from tests.builders.log_builder import LogBuilder

DAY = 86400.0


def make_scrub(
    store: Any,
    folder: Path,
    clock: ManualClock,
    *,
    interval: Any = DAY,
    rate: Any = 1 << 40,
    acknowledged: Any = None,
    on_harm: Callable[[Sequence[str]], None] | None = None,
) -> Scrub:
    return Scrub(
        store,
        ScrubSettings(interval, rate),
        str(folder),
        formats=lambda name: FORMAT,
        acknowledged=lambda: acknowledged,
        clock=clock,
        random=Random(1),
        on_harm=on_harm,
    )


@pytest.mark.slow
def test_the_first_one_is_soon_and_the_next_an_interval_after_the_last(tmp_path: Path) -> None:
    clock = ManualClock()
    scrub = make_scrub(everything().store, tmp_path, clock)
    assert 0 <= scrub.due - clock.monotonic() <= FIRST_SHARE * DAY
    verified, new = scrub.run(threading.Event())
    assert (verified.anomalies, new, verified.time) == (0, [], clock.now())
    assert verified.objects == len(everything().objects())
    assert scrub.due == clock.monotonic() + DAY


@pytest.mark.slow
def test_a_restart_continues_counting(tmp_path: Path) -> None:
    clock = ManualClock()
    make_scrub(everything().store, tmp_path, clock).run(threading.Event())
    clock.advance(DAY / 4)
    scrub = make_scrub(everything().store, tmp_path, clock)
    assert scrub.last.objects > 0
    assert scrub.due - clock.monotonic() == pytest.approx(DAY * 3 / 4)
    clock.jump(-10 * DAY)
    assert make_scrub(everything().store, tmp_path, clock).due - clock.monotonic() == DAY
    clock.jump(100 * DAY)
    assert make_scrub(everything().store, tmp_path, clock).due == clock.monotonic()


@pytest.mark.slow
def test_an_anomaly_is_logged_once_even_after_a_restart_and_again_if_it_comes_back(tmp_path: Path) -> None:
    objects = everything().objects()
    key = max(key for key in objects if "wal" in key)
    damaged = {**objects, key: objects[key][:-1] + b"?"}
    clock = ManualClock()
    stop = threading.Event()
    scrub = make_scrub(store_of(damaged), tmp_path, clock)
    verified, new = scrub.run(stop)
    assert (verified.anomalies, [anomaly.key for anomaly in new]) == (1, [key])
    verified, new = scrub.run(stop)
    assert (verified.anomalies, new) == (1, [])
    verified, new = make_scrub(store_of(damaged), tmp_path, clock).run(stop)
    assert (verified.anomalies, new) == (1, [])
    verified, new = make_scrub(store_of(objects), tmp_path, clock).run(stop)
    assert (verified.anomalies, new) == (0, [])
    verified, new = make_scrub(store_of(damaged), tmp_path, clock).run(stop)
    assert (verified.anomalies, len(new)) == (1, 1)


def damage(file: Path) -> None:
    """Flip the second digit of a number: the file stays JSON, and states another time."""
    body = file.read_bytes()
    at = body.index(b'"time": ') + len(b'"time": ') + 1
    file.write_bytes(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])


@pytest.mark.slow
def test_a_damaged_file_is_reported_once_and_counts_as_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    make_scrub(everything().store, tmp_path, clock).run(threading.Event())
    damage(tmp_path / FILE)
    scrub = make_scrub(everything().store, tmp_path, clock)
    assert scrub.last is None
    (record,) = caplog.records
    assert (record.event, record.args[0]) == ("state-lost", str(tmp_path / FILE))
    assert "the checksum is wrong" in record.getMessage()
    assert "the replica counts as never verified" in record.getMessage()
    scrub.run(threading.Event())
    assert make_scrub(everything().store, tmp_path, clock).last == scrub.last
    assert len(caplog.records) == 1


@pytest.mark.slow
def test_a_file_that_an_earlier_release_wrote_without_a_checksum_is_read(tmp_path: Path) -> None:
    clock = ManualClock()
    earlier = {
        "last": {"time": clock.now(), "objects": 7, "bytes": 70, "anomalies": 1, "unread": 0, "seconds": 0.5},
        "said": ["missing wal/1"],
        "number": 3,
    }
    (tmp_path / FILE).write_text(json.dumps(earlier))
    scrub = make_scrub(everything().store, tmp_path, clock)
    assert (scrub.last.objects, scrub.last.anomalies, scrub.last.damaged) == (7, 1, ())
    assert scrub.due - clock.monotonic() == DAY
    scrub.run(threading.Event())
    kept = json.loads((tmp_path / FILE).read_text())
    assert kept.keys() == {"version", "checksum", "last", "said", "number"}
    assert kept["number"] == 4


@pytest.mark.slow
def test_a_store_that_fails_is_reported_and_tried_again_within_the_hour(tmp_path: Path) -> None:
    class Down:
        enforces_create_only, url = True, "down://"

        def list(self, prefix: Any, start_after: Any = None) -> None:
            raise StoreError("list", prefix, "down")

    clock = ManualClock()
    good = make_scrub(everything().store, tmp_path, clock)
    good.run(threading.Event())
    clock.advance(DAY)
    scrub = make_scrub(Down(), tmp_path, clock)
    verified, new = scrub.run(threading.Event())
    assert "down" in verified.error
    assert (verified.time, new) == (good.last.time, [])
    assert scrub.due == clock.monotonic() + 3600


@pytest.mark.slow
def test_a_repair_that_fails_keeps_the_findings_and_is_tried_again_within_the_hour(tmp_path: Path) -> None:
    clock = ManualClock()
    store = everything().store
    repaired: list[Sequence[str]] = []
    failures = [StoreError("list", "generations/", "slow down")]

    def repair(keys: Sequence[str]) -> None:
        if failures:
            raise failures.pop()
        repaired.append(keys)

    scrub = make_scrub(store, tmp_path, clock, on_harm=repair)
    lost = next(info.key for info in store.list("") if "/segments/" in info.key)
    store.delete([lost])
    verified, new = scrub.run(threading.Event())
    assert lost in verified.damaged
    assert [anomaly.key for anomaly in new] == [*verified.damaged]
    assert "slow down" in verified.error
    assert scrub.due == clock.monotonic() + 3600
    verified, new = scrub.run(threading.Event())
    assert (verified.error, new) == (None, [])
    assert repaired == [[*verified.damaged]]


def test_it_stops_on_request(tmp_path: Path) -> None:
    stop = threading.Event()

    class Stopping(CountingStore):
        def open(self, key: Any, byte_range: Any = None) -> Any:
            stop.set()
            return super().open(key, byte_range)

    scrub = make_scrub(Stopping(everything().store), tmp_path, ManualClock())
    assert scrub.run(stop) is None
    assert scrub.last is None
    assert os.listdir(tmp_path) == []


def test_it_reads_no_faster_than_it_may() -> None:
    clock, waited = ManualClock(), []

    def wait(seconds: Any) -> None:
        waited.append(seconds)
        clock.advance(seconds)

    store = store_of({f"epochs/{n:08x}.json": b"x" * 100_000 for n in range(1, 11)})
    throttled = ThrottledStore(store, 50_000, clock, wait)
    started = clock.monotonic()
    for info in throttled.list(""):
        with throttled.open(info.key) as stream:
            assert len(stream.read()) == 100_000
    expected = 10 * (100_000 + REQUEST_BYTES) / 50_000
    assert clock.monotonic() - started == pytest.approx(expected, rel=0.15)
    assert max(waited) < 2.5


def test_it_sees_what_somebody_deleted_in_a_bucket_with_versions(tmp_path: Path) -> None:
    """The daemon's wrappers pass the versions on. Listing them costs as much of the rate as listing objects, and ends
    if the daemon ends."""
    clock, stop, slept = ManualClock(), threading.Event(), list[float]()
    store = VersionedStore()
    everything().put_into(store)
    meter = RequestMeter(clock)
    wrapped = RetryingStore(CheckingStore(MeteredStore(store, meter)), stop)
    assert make_scrub(wrapped, tmp_path, clock).run(stop)[1] == []  # type: ignore[index]
    listed = meter.requests["list", "ok"]
    claim = min(info.key for info in store.list("epochs/"))
    store.delete([claim])
    result, anomalies = make_scrub(wrapped, tmp_path, clock).run(stop)  # type: ignore[misc]
    assert (AnomalyKind.DELETED, claim) in [(each.kind, each.key) for each in anomalies]
    assert claim in result.damaged
    assert meter.requests["list", "ok"] > listed

    def sleep(seconds: float) -> None:
        slept.append(seconds)

    throttled = ThrottledStore(wrapped, LISTED_BYTES, clock, sleep)
    assert throttled.kept_versions is not None
    versions = sum(each.contents + each.markers for each in throttled.kept_versions.list(""))
    assert max(slept) >= versions - 2  # a second for each, as the clock stands still

    watch = Watch(should_continue=iter([True, True, False]).__next__)
    with pytest.raises(VerifyStoppedError):
        check_versions(wrapped.kept_versions, (), Findings(watch, Anomalies()))


def test_throttled_streams_return_all_bytes() -> None:
    store = store_of({"a": bytes(range(256)) * 20_000})
    throttled = ThrottledStore(store, 1 << 40, ManualClock(), lambda _: None)
    whole = store.open("a").read()
    with throttled.open("a") as stream:
        assert stream.read(10) == whole[:10]
        assert stream.read(3 << 20) == whole[10 : 10 + (3 << 20)]
        assert stream.read() == whole[10 + (3 << 20) :]
        assert stream.read(5) == b""


class Told:
    """A listener that records finished verifications, and waits for them."""

    def __init__(self) -> None:
        self.verified, self.shipped_bytes = [], 0
        self._changed = threading.Condition()

    def on_scrub_finished(self, event: ScrubFinished) -> None:
        with self._changed:
            self.verified.append(event)
            self._changed.notify_all()

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None:
        with self._changed:
            self.shipped_bytes += event.header.length
            self._changed.notify_all()

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None: ...

    def on_segment_sealed(self, event: Any) -> None: ...

    def on_snapshot_written(self, event: SnapshotWritten) -> None: ...

    def wait(self, holds: Callable[..., Any]) -> None:
        with self._changed:
            assert self._changed.wait_for(holds, WAIT_SECONDS)


class Soonest(Random):
    def uniform(self, a: float, b: float) -> float:
        return a


def configure(log: LogBuilder, tmp_path: Path, **settings: Any) -> Config:
    return make_config(
        "test", {"logs": [{"path": log.folder, "replicas": [{"url": str(tmp_path / "replica"), **settings}]}]}
    )


@pytest.mark.slow
def test_the_daemon_verifies_reports_findings_and_ships_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = make_log(tmp_path / "log")
    log.roll(5)
    told = Told()
    config = configure(log, tmp_path, scrub_interval=1)
    replicator = Replicator(config, state_dir=str(tmp_path / "state"), host="h", listener=told, random=Soonest())
    thread = threading.Thread(target=replicator.run)
    with caplog.at_level(logging.INFO):
        thread.start()
        try:
            told.wait(lambda: told.shipped_bytes)
            told.wait(lambda: any(event.verified.objects >= 3 for event in told.verified))
            assert not any(event.new for event in told.verified)
            (wal,) = Path(tmp_path / "replica").rglob("*.wal.lz4")
            body = bytearray(wal.read_bytes())
            body[-6] ^= 1
            os.chmod(wal, 0o644)
            wal.write_bytes(body)
            told.wait(lambda: any(event.new for event in told.verified))
            count, shipped = len(told.verified), told.shipped_bytes
            log.append(3)
            told.wait(lambda: told.shipped_bytes > shipped)
            told.wait(lambda: len(told.verified) >= count + 2)
            (status,) = replicator.status()
        finally:
            replicator.stop()
            thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
    new = [anomaly for event in told.verified for anomaly in event.new]
    assert len(new) == len({(anomaly.kind, anomaly.key) for anomaly in new})
    key = str(wal.relative_to(tmp_path / "replica"))
    assert ("checksum", key) in {(anomaly.kind, anomaly.key) for anomaly in new}
    assert status.last_verified is not None
    assert status.anomalies >= 1
    loud = [record for record in caplog.records if record.levelno == logging.ERROR and key in record.getMessage()]
    assert len([record for record in loud if "checksum" in record.getMessage()]) == 1


@pytest.mark.slow
def test_the_newest_object_is_missed_by_the_daemon_that_put_it(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(5)
    told = Told()
    config = configure(log, tmp_path, scrub_interval=1)
    replicator = Replicator(config, state_dir=str(tmp_path / "state"), host="h", listener=told, random=Soonest())
    thread = threading.Thread(target=replicator.run)
    thread.start()
    try:
        told.wait(lambda: told.shipped_bytes)
        (wal,) = Path(tmp_path / "replica").rglob("*.wal.lz4")
        wal.unlink()
        told.wait(lambda: any(event.new for event in told.verified))
    finally:
        replicator.stop()
        thread.join(WAIT_SECONDS)
    (anomaly,) = [anomaly for event in told.verified for anomaly in event.new]
    assert (anomaly.kind, anomaly.key) == ("missing", str(wal.relative_to(tmp_path / "replica")))


def test_nothing_is_verified_by_default(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(5)
    told = Told()
    replicator = Replicator(configure(log, tmp_path), state_dir=str(tmp_path / "state"), host="h", listener=told)
    replicator.run(once=True)
    (status,) = replicator.status()
    assert (told.verified, status.last_verified) == ([], None)
    config = configure(log, tmp_path, scrub_interval=1)
    Replicator(config, state_dir=str(tmp_path / "state"), host="h", listener=told, random=Soonest()).run(once=True)
    assert told.verified == []  # a run that only syncs has no background


@pytest.mark.parametrize(("interval", "good"), [(0, True), (1, True), (31_000_000, True), (0.5, False), (4e7, False)])
def test_intervals_have_limits(tmp_path: Path, interval: float, good: bool) -> None:
    log = make_log(tmp_path / "log")
    if good:
        (found,) = configure(log, tmp_path, scrub_interval=interval).logs
        assert found.replicas[0].scrub_interval == interval
    else:
        with pytest.raises(ConfigError, match="scrub"):
            configure(log, tmp_path, scrub_interval=interval)


@pytest.mark.slow
def test_scrub_settings_of_the_file_hold_for_replicas_without_their_own(tmp_path: Path) -> None:
    replicas = [{"url": "/one"}, {"url": "/two", "scrub_interval": 0, "scrub_rate": "1MiB"}]
    config = make_config(
        "test", {"scrub_interval": "1d", "scrub_rate": "4MiB", "logs": [{"path": "/l", "replicas": replicas}]}
    )
    one, two = config.logs[0].replicas
    assert (one.scrub_interval, one.scrub_rate) == (DAY, 4 << 20)
    assert (two.scrub_interval, two.scrub_rate) == (0, 1 << 20)
    with pytest.raises(ConfigError, match="rate"):
        make_config("test", {"scrub_rate": "1B", "logs": [{"path": "/l", "replicas": replicas}]})
