"""A mirror of a log that a daemon serves: byte-equal, durable, continued after a stop, and never of another history."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import contextmanager, nullcontext, suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("urllib3")

from litelog.errors import ConfigError, CorruptCommitError, DivergedError, LitelogError, LockedError
from litelog.live import live_buffer
from litelog.log.mirror_note import MIRROR_NAME
from litelog.log.writer import LOCK_NAME, LogWriter
from litelog.restore import mirror as mirror_module
from litelog.restore.mirror import SourceRefusedError, set_aside
from litelog.restore.opened_mirror import MirrorRules, keep_mirror, opened_mirror, promote
from litelog.restore.output import OutputError
from litelog.restore.wal_restore import RestoreStoppedError
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients import http
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.restoring import files_in
from tests.builders.server_builder import Watched
from tests.sampling import times
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.objects.position import Position
    from litelog.restore.execution import RestoreProgress
    from litelog.restore.mirror import Mirror

pytestmark = pytest.mark.slow

NO_LOG = (MIRROR_NAME, LOCK_NAME)


@contextmanager
def serving(
    tmp_path: Path, log: LogBuilder, sync_interval: float = 0.01, addr: str = "127.0.0.1:0"
) -> Iterator[tuple[Watched, str]]:
    pairs = [(log, [f"file://{tmp_path}/replica"])]
    with Watched(tmp_path, pairs, {"serve": "all", "addr": addr}, sync_interval=sync_interval) as watched:
        watched.wait_until_ready()
        assert watched.service.address is not None
        yield watched, f"http://127.0.0.1:{watched.service.address.port}/logs/log"


def held(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_in(folder).items() if name not in NO_LOG}


def catch_up(mirror: Mirror, log: LogBuilder, folder: Path) -> None:
    """Mirror until the folder holds the whole log."""
    wait_until(lambda: [mirror.step(0.0), held(folder) == log.texts][1])


def may_refuse(mirror: Mirror) -> None:
    """Take a step. The buffer of the source may notice later than its replica that the log forked."""
    with suppress(SourceRefusedError):
        mirror.step(0.0)


def test_a_mirror_becomes_and_stays_equal_to_the_log(tmp_path: Path, log: LogBuilder) -> None:
    log.roll(4)
    out = tmp_path / "out"
    with serving(tmp_path, log) as (_, url), opened_mirror(url, {}, str(out)) as mirror:
        catch_up(mirror, log, out)
        for _ in range(3):
            log.append(2)
            catch_up(mirror, log, out)
            log.roll(3)
            catch_up(mirror, log, out)
        assert mirror.next == log.next


def test_the_folder_of_the_log_itself_becomes_no_mirror(tmp_path: Path, log: LogBuilder) -> None:
    """By whatever path. A copy that a restore or a person made is continued."""
    log.roll(4)
    (tmp_path / "link").symlink_to(log.folder)
    shutil.copytree(log.folder, tmp_path / "copy")
    with serving(tmp_path, log) as (_, url):
        for folder in (log.folder, f"{tmp_path}/link"):
            refused = pytest.raises(OutputError, match="itself: a mirror needs another folder")
            with refused, opened_mirror(url, {}, folder):
                pass
        assert sorted(os.listdir(log.folder)) == sorted(log.texts)
        with opened_mirror(url, {}, f"{tmp_path}/copy") as mirror:
            catch_up(mirror, log, tmp_path / "copy")


@pytest.mark.parametrize("log", ["litelog", "lines"], indirect=True)
@pytest.mark.parametrize("what", ["notes", "another log", "a newer log segment", "a replica", "a file"])
def test_a_folder_that_holds_anything_else_is_refused_and_stays_as_it_is(
    tmp_path: Path, log: LogBuilder, what: str
) -> None:
    """Also what follows its last whole commit, which the next run of a mirror cuts off."""
    log.roll(2)
    out = tmp_path / "out"
    other = make_log(out, log.format.name)
    if what == "notes":
        (out / "todo.txt").write_bytes(b"one\nno line end")
    elif what == "another log":
        other.write((other.header() if log.format.name == "litelog" else b"") + b"x" * 100, sorted(log.texts)[-1])
    elif what == "a newer log segment":
        for name, data in log.texts.items():
            (out / name).write_bytes(data)
        log.next = 10**6
        other.write(b"no line end", log.roll(0) if log.format.name == "litelog" else "z.log")
        if log.format.name == "litelog":
            log.delete(log.name)
    elif what == "a replica":
        (out / "epochs").mkdir()
        (out / "epochs" / "00000001.json").write_bytes(b"{}")
    else:
        out.rmdir()
        out.write_bytes(b"a file")
    before = {path: path.read_bytes() for path in tmp_path.glob("out/**/*") if path.is_file()}
    with (
        serving(tmp_path, log) as (_, url),
        pytest.raises((OutputError, DivergedError), match=r"name a new folder|not a folder|its bytes are not"),
        opened_mirror(url, {}, str(out)),
    ):
        pass
    after = {path: path.read_bytes() for path in tmp_path.glob("out/**/*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.name != LOCK_NAME} == before


def test_a_stop_ends_the_first_restore_and_the_next_run_continues_it(tmp_path: Path, log: LogBuilder) -> None:
    for _ in range(8):
        log.roll(20)
    out, stop, read = tmp_path / "out", threading.Event(), list[int]()

    def end(progress: RestoreProgress) -> None:
        read.append(progress.restored)
        stop.set()

    with serving(tmp_path, log) as (_, url):
        stopped = opened_mirror(url, {}, str(out), stop=stop, progress=end)
        with pytest.raises(RestoreStoppedError), stopped:
            pass
        assert not out.exists()
        assert files_in(tmp_path / ".out.litelog-restoring"), "what is verified stays for the next run"
        assert read[-1] < sum(map(len, log.texts.values()))
        with opened_mirror(url, {}, str(out), stop=threading.Event()) as mirror:
            catch_up(mirror, log, out)


def test_a_stop_ends_a_comparison_and_a_step(tmp_path: Path, log: LogBuilder) -> None:
    log.roll(3)
    out, stop = tmp_path / "out", threading.Event()
    shutil.copytree(log.folder, out)
    with serving(tmp_path, log) as (_, url):
        stop.set()
        with pytest.raises(RestoreStoppedError), opened_mirror(url, {}, str(out), stop=stop):
            pass
        stop.clear()
        with opened_mirror(url, {}, str(out), stop=stop) as mirror:
            catch_up(mirror, log, out)
            before = held(out)
            log.append(1)
            stop.set()
            assert not mirror.step(1.0)
            assert held(out) == before


def test_the_first_step_of_a_mirror_that_lacks_nothing_says_so(tmp_path: Path, log: LogBuilder) -> None:
    """A mirror with ``--once`` ends after it, and not after another wait."""
    log.roll(4)
    out = tmp_path / "out"
    with serving(tmp_path, log) as (_, url):
        with opened_mirror(url, {}, str(out)) as mirror:
            catch_up(mirror, log, out)
        with opened_mirror(url, {}, str(out)) as mirror:
            assert mirror.step(0.0) is False
            assert mirror.position is not None


@pytest.mark.parametrize("name", ["lines", "raw"])
def test_a_log_without_numbers_is_mirrored(tmp_path: Path, name: str) -> None:
    log = make_log(tmp_path / "log", name)
    log.roll(3)
    out = tmp_path / "out"
    with serving(tmp_path, log) as (_, url):
        for _ in range(2):
            with opened_mirror(url, {}, str(out)) as mirror:
                catch_up(mirror, log, out)
                log.append(2)
                log.roll(1)
                catch_up(mirror, log, out)


def test_a_mirror_continues_after_a_stop_and_a_cut_at_every_kind_of_place(tmp_path: Path, log: LogBuilder) -> None:
    out = tmp_path / "out"
    log.roll(3)
    with serving(tmp_path, log) as (_, url):
        with opened_mirror(url, {}, str(out)) as mirror:
            catch_up(mirror, log, out)
        whole = held(out)
        newest = log.name
        size = len(whole[newest])
        for cut in (0, 1, len(log.header()) - 1, len(log.header()), len(log.header()) + 9, size - 1, size):
            os.truncate(out / newest, cut)
            log.append(1)
            with opened_mirror(url, {}, str(out)) as mirror:
                catch_up(mirror, log, out)
        os.unlink(out / newest)
        with opened_mirror(url, {}, str(out)) as mirror:
            catch_up(mirror, log, out)


def test_bytes_after_the_last_commit_are_an_error_if_asked_for(tmp_path: Path, log: LogBuilder) -> None:
    out = tmp_path / "out"
    with serving(tmp_path, log) as (_, url):
        with opened_mirror(url, {}, str(out)) as mirror:
            catch_up(mirror, log, out)
        with (out / log.name).open("ab") as file:
            file.write(b"torn")
        before = held(out)
        with pytest.raises(CorruptCommitError), opened_mirror(url, {}, str(out), on_trailing="error"):
            pass
        assert held(out) == before


def test_a_mirror_is_ahead_of_the_replica_and_continues_there(tmp_path: Path, log: LogBuilder) -> None:
    """The mirror gets durable data of the source before the replica has it."""
    out = tmp_path / "out"
    with serving(tmp_path, log, sync_interval=10 * WAIT_SECONDS) as (watched, url):
        acknowledged = watched.ask("/logs/log").json["acknowledged"]
        for _ in range(3):
            with opened_mirror(url, {}, str(out)) as mirror:
                log.append(2)
                log.roll(2)
                catch_up(mirror, log, out)
        assert watched.ask("/logs/log").json["acknowledged"] == acknowledged < log.next


def test_a_request_states_a_position_that_is_durable_here(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each log segment, all bytes before the position were synced when the source learns of it."""
    out, synced, stated = tmp_path / "out", dict[str, int](), list[int]()
    sync, stream = os.fsync, ObjectReplicaClient.stream_wal

    def note_sync(file: int) -> None:
        sync(file)
        synced[os.path.basename(os.readlink(f"/proc/self/fd/{file}"))] = os.fstat(file).st_size

    def note_request(self: ObjectReplicaClient, position: Position, seconds: float, limit: int, *more: str) -> Any:
        sizes = {name: len(data) for name, data in held(out).items()}
        assert {name: synced.get(name) for name in sizes} == sizes
        stated.append(position.offset)
        return stream(self, position, seconds, limit, *more)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(ObjectReplicaClient, "stream_wal", note_request)
    with serving(tmp_path, log) as (_, url), opened_mirror(url, {}, str(out)) as mirror:
        for _ in range(3):
            log.append(2)
            catch_up(mirror, log, out)
            log.roll(1)
            catch_up(mirror, log, out)
    assert len(set(stated)) > 2


@pytest.mark.parametrize("is_awaited", [True, False])
def test_data_that_was_waited_for_is_written_before_the_end_of_the_answer(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch, is_awaited: bool
) -> None:
    """A mirror that lags writes in a second thread, while it receives more."""
    out, sizes, stream = tmp_path / "out", list[tuple[int, int]](), ObjectReplicaClient.stream_wal

    def note_written(self: ObjectReplicaClient, *arguments: Any) -> Iterator[Any]:
        for segment in stream(self, *arguments):
            yield segment
            sizes.append((segment.header.end, (out / segment.header.file).stat().st_size))

    monkeypatch.setattr(mirror_module, "LIVE_SECONDS", 0.0 if is_awaited else 1e9)
    with serving(tmp_path, log) as (_, url), opened_mirror(url, {}, str(out)) as mirror:
        catch_up(mirror, log, out)
        monkeypatch.setattr(ObjectReplicaClient, "stream_wal", note_written)
        for _ in range(3):
            log.append(2)
            catch_up(mirror, log, out)
    assert sizes
    assert all((size == end) is is_awaited for end, size in sizes)


def test_a_fork_ends_a_mirror_with_the_reason_and_it_keeps_what_it_held(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "RETRY_SECONDS", 0.02)
    out = tmp_path / "out"
    with serving(tmp_path, log) as (_, url):
        with opened_mirror(url, {}, str(out)) as mirror:
            catch_up(mirror, log, out)
            before = held(out)
            log.truncate(len(log.header()) + (len(log.texts[log.name]) - len(log.header())) // 3)
            log.next = 1
            log.append(3, size=30)
            with pytest.raises(DivergedError) as caught:
                mirror.run(threading.Event(), 0.05)
            assert not isinstance(caught.value, SourceRefusedError)
            assert held(out) == before
        with pytest.raises(DivergedError), opened_mirror(url, {}, str(out)) as mirror:
            mirror.run(threading.Event(), 0.05)
        assert held(out) == before
        aside = set_aside(str(out))
        with opened_mirror(url, {}, str(out)) as mirror:
            wait_until(lambda: [may_refuse(mirror), held(out) == log.texts][1])
        assert {name: data for name, data in files_in(aside).items() if name not in NO_LOG} == before


def test_a_log_that_ended_earlier_and_continues_in_another_log_segment_is_a_fork(
    tmp_path: Path, log: LogBuilder
) -> None:
    """The mirror was ahead of the replica from which the log was restored."""
    out = tmp_path / "out"
    log.roll(1)
    end, following = len(log.texts[log.name]), log.next
    log.append(1)
    with serving(tmp_path, log) as (_, url), opened_mirror(url, {}, str(out)) as mirror:
        catch_up(mirror, log, out)
    before = held(out)
    log.truncate(end)
    log.next = following
    log.roll(2)
    with serving(tmp_path, log) as (_, url):
        with opened_mirror(url, {}, str(out)) as mirror, pytest.raises(DivergedError, match="bytes, and the log's"):
            mirror.join()
        assert held(out) == before


@pytest.mark.parametrize("held_bytes", [1, live_buffer.HELD_BYTES])
def test_a_mirror_gets_what_a_source_without_its_folder_still_has(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch, held_bytes: int
) -> None:
    """The disk of the log is gone. The daemon has what its buffer holds, and the replica what the buffer dropped."""
    monkeypatch.setattr(live_buffer, "HELD_BYTES", held_bytes)
    out = tmp_path / "out"
    log.roll(3)
    with serving(tmp_path, log) as (watched, url), opened_mirror(url, {}, str(out)) as mirror:
        catch_up(mirror, log, out)
        for _ in range(2):
            log.append(2)
            log.roll(2)
        for end in ("acknowledged", "durable"):
            wait_until(lambda end=end: watched.ask("/logs/log").json[end] == log.next)
        shutil.move(log.folder, tmp_path / "gone")
        catch_up(mirror, log, out)


def test_other_commits_of_the_same_size_are_a_fork_though_no_replica_has_them(tmp_path: Path, log: LogBuilder) -> None:
    """All commits that end with their own CRC-32C have the same CRC-32C, whatever they hold. The daemon was killed
    before it shipped them, so it does not know that there were others."""
    out = tmp_path / "out"
    log.roll(3)
    with serving(tmp_path, log, sync_interval=10 * WAIT_SECONDS) as (_, url):
        for name in ("replica", "state"):
            shutil.copytree(tmp_path / name, tmp_path / f"{name}-before")
        end, following = len(log.texts[log.name]), log.next
        with opened_mirror(url, {}, str(out)) as mirror:
            log.append(3)
            catch_up(mirror, log, out)
    for name in ("replica", "state"):
        shutil.rmtree(tmp_path / name)
        (tmp_path / f"{name}-before").rename(tmp_path / name)
    before, size = held(out), len(log.texts[log.name])
    log.truncate(end)
    log.next = following
    log.write(b"".join(log.commit(tag=b"q") for _ in range(3)))
    assert len(log.texts[log.name]) == size
    with serving(tmp_path, log, sync_interval=10 * WAIT_SECONDS) as (_, url):
        log.append(1)
        with opened_mirror(url, {}, str(out)) as mirror, pytest.raises(DivergedError, match="are not those"):
            wait_until(lambda: [mirror.step(0.0), held(out) != before][1])
    assert held(out) == before


@pytest.mark.parametrize("beyond", [0, 1])
def test_other_commits_up_to_the_same_boundary_are_a_fork(
    tmp_path: Path, log: LogBuilder, beyond: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, for a mirror that has nothing of the newest log segment yet, or only ``beyond`` commits, which the log
    has again."""
    monkeypatch.setattr(mirror_module, "LIMIT_BYTES", 1)
    out = tmp_path / "out"
    log.roll(3)
    with serving(tmp_path, log, sync_interval=10 * WAIT_SECONDS) as (watched, url):
        for name in ("replica", "state"):
            shutil.copytree(tmp_path / name, tmp_path / f"{name}-before")
        first, end, following = log.name, len(log.texts[log.name]), log.next
        with opened_mirror(url, {}, str(out)) as mirror:
            log.append(3)
            catch_up(mirror, log, out)
            if beyond:
                log.roll(beyond)
                catch_up(mirror, log, out)
            else:
                log.roll(1)
                wait_until(lambda: [mirror.step(0.0), mirror.position is not None and not mirror.position.offset][1])
            watched.__exit__()
            for name in ("replica", "state"):
                shutil.rmtree(tmp_path / name)
                (tmp_path / f"{name}-before").rename(tmp_path / name)
            before, size, second = held(out), len(log.texts[first]), log.texts[log.name]
            log.truncate(end, first)
            log.next = following
            log.write(b"".join(log.commit(tag=b"q") for _ in range(3)), first)
            assert len(log.texts[first]) == size
            log.next += 1
            with serving(tmp_path, log, 10 * WAIT_SECONDS, url.split("/")[2]):
                log.append(1)
                with pytest.raises(DivergedError, match="are not those"):
                    wait_until(lambda: [mirror.step(0.0), held(out) != before][1])
            assert held(out) == before
            assert log.texts[log.name].startswith(second)


@pytest.mark.parametrize("log", ["lines"], indirect=True)
def test_the_advice_after_a_fork_has_the_options_that_the_mirror_had(tmp_path: Path, log: LogBuilder) -> None:
    out, replica = f"{tmp_path}/out", f"file://{tmp_path}/replica"
    other = make_log(out, "lines")
    other.write(b"another line\n", log.name)
    rules = MirrorRules("app.*", replicas=((replica, {}),))
    with serving(tmp_path, log) as (_, url):
        words = ("--on-fork", "new", "--pattern", "'app.*'", "--replica", replica, url, out)
        with pytest.raises(DivergedError) as refused:
            keep_mirror(
                (url, {}), out, rules, lambda _: None, opening=lambda: nullcontext(None), note_aside=pytest.fail
            )
        assert str(refused.value).endswith(f": litelog mirror {' '.join(words)}")


@pytest.mark.parametrize("log", ["lines"], indirect=True)
def test_a_file_that_somebody_puts_among_the_log_segments_of_a_mirror_is_not_stated(
    tmp_path: Path, log: LogBuilder
) -> None:
    """Such as a finished log segment that was compressed. The log has no such file."""
    out = tmp_path / "out"
    before = log.name
    with serving(tmp_path, log) as (_, url):
        for _ in range(2):
            with opened_mirror(url, {}, str(out)) as mirror:
                log.roll(1)
                wait_until(lambda: [mirror.step(0.0), (out / log.name).exists()][1])
                (out / f"{before}.gz").write_bytes(b"compressed")
                log.append(1)
                wait_until(lambda: [mirror.step(0.0), held(out).get(log.name) == log.texts[log.name]][1])
                assert mirror.position is not None
                end = mirror._describe_end(mirror.position)
                assert end.segment is not None
                assert end.segment.file == before
                before = log.name


def test_a_copy_of_another_history_is_not_continued(tmp_path: Path, log: LogBuilder) -> None:
    out = tmp_path / "out"
    log.roll(3)
    with serving(tmp_path, log) as (_, url):
        with opened_mirror(url, {}, str(out)) as mirror:
            catch_up(mirror, log, out)
        os.unlink(out / MIRROR_NAME)
        first = next(iter(log.texts))
        damaged = bytearray((out / first).read_bytes())
        damaged[-20] ^= 1
        (out / first).write_bytes(damaged)
        before = held(out)
        with pytest.raises(DivergedError, match="not those of the log"), opened_mirror(url, {}, str(out)):
            pass
        assert held(out) == before


def test_no_writer_and_no_other_mirror_has_the_folder_meanwhile(tmp_path: Path, log: LogBuilder) -> None:
    out = tmp_path / "out"
    with serving(tmp_path, log) as (_, url):
        with opened_mirror(url, {}, str(out)):
            with pytest.raises(LockedError):
                LogWriter(str(out))
            with pytest.raises(LockedError), opened_mirror(url, {}, str(out)):
                pass
        with pytest.raises(ConfigError, match="is a mirror of another log"):
            LogWriter(str(out))


def test_a_promoted_mirror_has_all_that_the_replica_has_and_takes_appends(tmp_path: Path, log: LogBuilder) -> None:
    out, replica = tmp_path / "out", f"file://{tmp_path}/replica"
    with serving(tmp_path, log) as (watched, url):
        with opened_mirror(url, {}, str(out)) as mirror:
            catch_up(mirror, log, out)
        log.append(3)
        log.roll(2)
        wait_until(lambda: watched.ask("/logs/log").json["acknowledged"] == log.next)
    with (out / list(held(out))[-1]).open("ab") as file:
        file.write(b"torn")
    promoted = promote(str(out), [(replica, {})])
    assert (promoted.source, promoted.trimmed, held(out)) == (url, 4, log.texts)
    with LogWriter(str(out)) as writer:
        assert writer.next_sequence == log.next
    with pytest.raises(ConfigError, match="is not a mirror"):
        promote(str(out), [(replica, {})])


def test_a_mirror_that_runs_waits_for_a_source_that_is_away(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mirror_module, "RETRY_SECONDS", 0.02)
    out, stop = tmp_path / "out", threading.Event()
    with serving(tmp_path, log) as (watched, url), opened_mirror(url, {}, str(out)) as mirror:
        assert watched.service.address is not None
        runner = threading.Thread(target=lambda: mirror.run(stop, 0.2))
        runner.start()
        try:
            log.append(2)
            wait_until(lambda: held(out) == log.texts)
            watched.__exit__()
            log.append(2)
            again = {"serve": "all", "addr": f"127.0.0.1:{watched.service.address.port}"}
            pairs = [(log, [f"file://{tmp_path}/replica"])]
            with Watched(tmp_path, pairs, {**again, "serve": ("other",)}):
                wait_until(lambda: "no such log is served here" in caplog.text)
            with Watched(tmp_path, pairs, again):
                log.roll(1)
                wait_until(lambda: held(out) == log.texts)
        finally:
            stop.set()
            runner.join(WAIT_SECONDS)
        assert not runner.is_alive()


def test_the_source_shows_where_a_mirror_is_durable(tmp_path: Path, log: LogBuilder) -> None:
    out = tmp_path / "out"
    with serving(tmp_path, log) as (watched, url):
        assert watched.ask("/logs/log").json["mirrors"] == []
        with opened_mirror(url, {}, str(out)) as mirror:
            catch_up(mirror, log, out)
            mirror.step(0.0)
            (shown,) = watched.ask("/logs/log").json["mirrors"]
            assert shown["mirror"].endswith(f":{out}")
            assert (shown["position"], shown["lag_seconds"]) == (str(mirror.position), 0)
            log.append(2)
            wait_until(lambda: watched.ask("/logs/log").json["mirrors"][0]["lag_seconds"] > 0)
            assert watched.ask("/logs/log").json["mirrors"][0]["position"] == shown["position"]
            (of_log,) = watched.ask("/status").json["logs"]
            assert [each["mirror"] for each in of_log["mirrors"]] == [shown["mirror"]]
            metrics = watched.ask("/metrics").body.decode()
            assert f'litelog_mirror_lag_seconds{{log="{log.folder}",mirror="{shown["mirror"]}"}} ' in metrics
            catch_up(mirror, log, out)
            mirror.step(0.0)
            assert watched.ask("/logs/log").json["mirrors"][0]["lag_seconds"] == 0


def test_a_mirror_stays_a_prefix_while_answers_are_cut_and_damaged(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror stops, opens again and continues, as ``run`` or a person does."""
    out, random = tmp_path / "out", Random(19)
    faults = 0

    class Damaging(http._Stream):
        def read(self, size: int = -1) -> bytes:
            nonlocal faults
            data, chance = super().read(size), random.random()
            if not data or chance > 0.1:
                return data
            faults += 1
            if chance < 0.05:
                return data[: random.randrange(len(data))]
            damaged = bytearray(data)
            damaged[random.randrange(len(data))] ^= 1 << random.randrange(8)
            return bytes(damaged)

    with serving(tmp_path, log) as (_, url):
        with opened_mirror(url, {}, str(out)) as mirror:
            catch_up(mirror, log, out)
        with monkeypatch.context() as patch:
            patch.setattr(http, "_Stream", Damaging)
            for step in range(times(15, at_night=400)):
                log.append(1 + step % 3) if step % 7 else log.roll(1)
                with suppress(LitelogError), opened_mirror(url, {}, str(out)) as mirror:
                    for _ in range(3):
                        mirror.step(0.01)
                files = held(out)
                assert b"".join(log.texts.values()).startswith(b"".join(files.get(name, b"") for name in log.texts))
                assert files.keys() <= log.texts.keys()
        with opened_mirror(url, {}, str(out)) as mirror:
            catch_up(mirror, log, out)
    assert faults > 5
