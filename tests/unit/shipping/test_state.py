"""Damaged state files: content that no daemon saved counts as lost state, and a log line names the file."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from litelog.codec.checksum import crc32c
from litelog.errors import ForeignClaimError, LitelogError
from litelog.log import sequence_base
from litelog.log.replica_registry import (
    ReplicaSet,
    ReplicatedSegment,
    read_generation,
    read_replicated,
    save_replicated,
)
from litelog.objects.position import Generation, Position
from litelog.replicator.snapshot_requests import VERDICTS_FILE, VERDICTS_LOCK, Answer, Request, Requests
from litelog.shipping import archive_state
from litelog.shipping.state import (
    Claimed,
    ReplicaState,
    Running,
    StateError,
    StateFolder,
    Unclaimed,
    read_state,
)
from litelog.system.private_files import make_private, make_private_root, open_lock, write_private
from litelog.verify import scrub as scrubbing
from litelog.verify.scrub import Scrub, ScrubSettings
from replica_clients.memory import MemoryStore
from tests.builders.child import runs_in_child
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.replica_builder import FORMAT
from tests.builders.users import as_user, run_where_files_belong_to

if TYPE_CHECKING:
    from collections.abc import Iterator

JUNK: list[Any] = [
    None, True, False, 0, -1, 1, 1 << 63, 1 << 64, -(1 << 70), 10**400, 1.5, 1e308, "", "x", "../../x", "\ud800", "\0",
    [], [[]], {}, {"x": 1}, [1, "x"], [None], "f" * 32, "0" * 16, "{}", '{"generation": []}',
]  # fmt: skip
NESTED = (
    "[" * 100_000,
    '{"a":' * 100_000,
    "[" * 100_000 + "]" * 100_000,
    '{"version": 1, "x": ' + "[" * 900 + "]" * 900 + "}",
)
NOT_STATE = (b"", b"\0" * 100, b"\xff\xfe\xff", b"null", b"3", b"[]", b'"x"', b"NaN", b"{}", b'{"version": true}',
             b'{"version": 1, "checksum": null}', b'{"version": 1e400}', b"9" * 5000)  # fmt: skip


EARLIER = Path(__file__).parent / "earlier_states"
"""State files of a release that kept claim, position and archive as text in memory, too: one for each stage."""

SHARE = 40
"""A daemon is started with every 40th well-formed state."""


def signed(fields: dict[str, Any]) -> bytes:
    """A file with those fields, and the checksum that they should have."""
    checksum = crc32c(json.dumps(fields, sort_keys=True).encode())
    return json.dumps({"version": 1, "checksum": checksum, **fields}).encode()


def variants(fields: Any) -> Iterator[Any]:
    """``fields`` with each value, at any depth, replaced with junk or left out, and ``fields`` with one more value."""
    if isinstance(fields, dict):
        yield {**fields, "unknown": 1}
        for name, value in fields.items():
            yield {other: kept for other, kept in fields.items() if other != name}
            for junk in JUNK:
                yield {**fields, name: junk}
            for changed in variants(value):
                yield {**fields, name: changed}
    elif isinstance(fields, list):
        for at, value in enumerate(fields):
            for changed in (*JUNK, *variants(value)):
                yield [*fields[:at], changed, *fields[at + 1 :]]


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    log = make_log(tmp_path / "log")
    for _ in range(3):
        log.roll(2)
    return log


@pytest.fixture
def daemon(log: LogBuilder, tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(log, MemoryStore("memory://r"), str(tmp_path / "state"))
    while daemon.sync():
        pass
    yield daemon
    daemon.close()


def state_fields(daemon: Daemon) -> dict[str, Any]:
    daemon.crash()
    fields: dict[str, Any] = json.loads(Path(daemon.state, "state.json").read_bytes())
    return {name: value for name, value in fields.items() if name not in ("version", "checksum")}


@pytest.mark.slow
def test_state_of_any_shape_under_a_good_checksum_is_state_or_lost(daemon: Daemon) -> None:
    fields = state_fields(daemon)
    path, found, lost = Path(daemon.state, "state.json"), 0, 0
    archive = fields["archive"]
    for changed in variants({**fields, "archive": None}):
        path.write_bytes(signed(changed))
        state = read_state(daemon.state)
        lost += state is None
        found += state is not None
    assert lost > 3 * found > 0
    path.write_bytes(signed({**fields, "archive": archive}))
    assert read_state(daemon.state) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"claim": "{}"},
        {"claim": "[" * 1000},
        {"owner": "f" * 32},
        {"log": "f" * 32},
        {"last": "here"},
        {"base": -1},
        {"place": {"index": -1}},
        {"place": {"file": "../../etc/passwd"}},
        {"place": {"behind": "a/b"}},
        {"place": {"offset": 1 << 60}},
        {"place": {"check_start": -1}},
        {"place": {"offset": 10, "check_start": 11}},
        {"place": {"behind_end": 1 << 60}},
    ],
    ids=repr,
)
def test_state_with_impossible_values_is_treated_as_lost(daemon: Daemon, changes: dict[str, Any]) -> None:
    fields = state_fields(daemon)
    place = {**fields["place"], **changes.get("place", {})}
    Path(daemon.state, "state.json").write_bytes(signed({**fields, **changes, "place": place}))
    assert read_state(daemon.state) is None


@pytest.mark.slow
def test_a_daemon_ends_with_a_litelog_error_for_any_state(daemon: Daemon) -> None:
    """A well-formed state may still belong to another log, another owner or another place."""
    fields = state_fields(daemon)
    outcomes, possible = set(), []
    for changed in variants({**fields, "archive": None}):
        Path(daemon.state, "state.json").write_bytes(signed(changed))
        if read_state(daemon.state) is not None:
            possible.append(changed)
    for changed in possible[::SHARE]:
        Path(daemon.state, "state.json").write_bytes(signed(changed))
        daemon.start()
        try:
            daemon.sync()
            outcomes.add("synced")
        except LitelogError as error:
            outcomes.add(type(error).__name__)
        finally:
            daemon.crash()
    assert "synced" in outcomes


@pytest.mark.parametrize("content", [*NOT_STATE, *map(str.encode, NESTED)], ids=lambda content: repr(content[:20]))
def test_an_invalid_state_file_is_treated_as_lost_and_logged_with_its_name(
    daemon: Daemon, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    daemon.crash()
    path = Path(daemon.state, "state.json")
    path.write_bytes(content)
    daemon.start()
    with pytest.raises(ForeignClaimError, match="run again with --takeover"):
        daemon.sync()
    (line,) = (record.getMessage() for record in caplog.records if getattr(record, "event", "") == "state-lost")
    assert line.startswith(f"{path}: cannot be used: ")
    assert line.endswith("it is treated as lost: without it, this daemon needs --takeover once to write to the replica")
    daemon.restart(takeover=True)
    daemon.sync()
    assert daemon.claims[-1].relation == "continues"


@pytest.mark.slow
@runs_in_child
def test_an_archive_of_any_shape_is_a_state_or_lost(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    archive = json.loads(state_fields(daemon)["archive"])
    archive["covered"] = [{"generation": archive["generation"], "next": 1, "since": 2.5}]
    archive["drops"] = [{"time": 5, "first": 2}]
    name, kept = archive["generation"], 0
    for changed in variants(archive):
        read = archive_state.read_archive(json.dumps(changed), "/state.json")
        state = archive_state.resume_archive(read, name, "boot", 3.0)
        assert state.generation == name
        kept += state.snapshot == archive["snapshot"] is not None
    assert kept > 0
    for text in (*NESTED, "", "[]", "null", "x"):
        read = archive_state.read_archive(text, "/f")
        assert archive_state.resume_archive(read, name, "boot", 3.0) == archive_state.ArchiveState(name, boot="boot")
    assert "/f: its part about sealed segments cannot be used: " in caplog.text


@pytest.mark.parametrize(("name", "stage"), [("unclaimed", Unclaimed), ("claimed", Claimed), ("running", Running)])
def test_state_that_an_earlier_release_saved_is_read_and_saved_as_it_was(
    tmp_path: Path, name: str, stage: type[ReplicaState]
) -> None:
    earlier = (EARLIER / f"{name}.json").read_bytes()
    path = tmp_path / "state.json"
    path.write_bytes(earlier)
    with StateFolder(str(tmp_path), "test") as folder:
        kept = folder.load()
        assert isinstance(kept, stage)
        path.unlink()
        folder.save(kept)
        assert path.read_bytes() == earlier
        assert folder.load() == kept


def test_values_that_an_earlier_release_saved_as_text_are_parsed(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes((EARLIER / "running.json").read_bytes())
    kept = read_state(str(tmp_path))
    assert isinstance(kept, Running)
    assert kept.claim.predecessor_end == Position(Generation("0000000100000def"), 2, 77)
    assert kept.last == Position(kept.claim.generation, 3, 0)
    assert kept.archive is not None
    assert (kept.archive.generation, kept.archive.snapshot) == (kept.claim.generation, 3)


def test_a_daemon_with_a_junk_archive_reads_it_from_the_replica(daemon: Daemon) -> None:
    fields = state_fields(daemon)
    Path(daemon.state, "state.json").write_bytes(signed({**fields, "archive": '{"generation": 3}'}))
    daemon.start()
    daemon.log.roll(2)
    while daemon.sync():
        pass
    assert daemon.claims[-1].generation == json.loads(fields["claim"])["generation"]


@pytest.mark.slow
def test_an_invalid_replicated_json_counts_as_nothing_replicated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = str(tmp_path)
    save_replicated(folder, "0" * 16, [ReplicatedSegment("a.log", 1, 2, 3, 4)])
    path = tmp_path / "replicated.json"
    fields = json.loads(path.read_bytes())
    fields = {name: fields[name] for name in ("generation", "segments")}
    for changed in variants(fields):
        path.write_bytes(signed(changed))
        for segment in read_replicated(folder).values():
            assert [type(value) for value in (segment.file, segment.length, segment.crc)] == [str, int, int]
        assert isinstance(read_generation(folder), str | None)
    for content in (*NOT_STATE, *map(str.encode, NESTED)):
        path.write_bytes(content)
        assert read_replicated(folder) == {}
        caplog.clear()
        assert read_generation(folder) is None
        assert f"{path}: cannot be used: " in caplog.text


@pytest.mark.slow
def test_a_set_of_replicas_never_names_a_folder_elsewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "log"
    replicas = ReplicaSet(str(place))
    replicas.add("one", "memory://one")
    (place / "one").mkdir()
    path = place / "replicas.json"
    for content in (
        *(signed({"replicas": names, "log": None}) for names in (*JUNK, {"../../etc": "x"}, {"..": "x"}, {"": "x"})),
        *NOT_STATE,
        *map(str.encode, NESTED),
    ):
        path.write_bytes(content)
        assert replicas.names() in (None, {})
    assert replicas.agree_on_log_id("a" * 32) == "a" * 32
    assert f"{path}: cannot be read, and is rebuilt" in caplog.text
    assert dict(replicas.names() or {}) == {"one": "one"}
    for log in JUNK[:-4]:
        path.write_bytes(signed({"replicas": {"one": "x"}, "log": log}))
        assert replicas.agree_on_log_id("b" * 32) == "b" * 32


def test_a_tombstone_of_any_shape_is_one_or_none(tmp_path: Path) -> None:
    good = {"file": "a.log", "first": 3, "head_length": 10, "head_crc": 7}
    for changed in variants(good):
        crc = crc32c(json.dumps(changed, sort_keys=True).encode())
        (tmp_path / sequence_base.TOMBSTONE_NAME).write_text(json.dumps({"version": 1, **changed, "crc": crc}))
        found = sequence_base.read_tombstone(str(tmp_path))
        assert found is None or 0 <= found.head_length <= sequence_base.MAX_HEAD_BYTES
    for content in (*NOT_STATE, *map(str.encode, NESTED)):
        (tmp_path / sequence_base.TOMBSTONE_NAME).write_bytes(content)
        assert sequence_base.read_tombstone(str(tmp_path)) is None


def test_an_invalid_note_of_a_verification_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / scrubbing.FILE
    for content in (*NOT_STATE[1:], *map(str.encode, NESTED), b'{"last": {"time": "x"}, "said": []}', b'{"last": 1}'):
        caplog.clear()
        path.write_bytes(content)
        scrub = _scrub(tmp_path)
        assert scrub.last is None
        assert f"{path}: cannot be used: " in caplog.text


def _scrub(folder: Path, store: MemoryStore | None = None) -> Scrub:
    from random import Random

    settings = ScrubSettings(3600.0, 1 << 20)
    return Scrub(
        store or MemoryStore("memory://r"),
        settings,
        str(folder),
        formats=lambda name: FORMAT,
        acknowledged=lambda: None,
        clock=ManualClock(),
        random=Random(1),
    )


def test_requests_and_answers_of_any_shape_are_none(tmp_path: Path) -> None:
    requests = Requests(str(tmp_path / "state"))
    requests.prepare()
    folder = Path(requests.folder)
    for content in (*NOT_STATE, *map(str.encode, NESTED), *(json.dumps({"folder": junk}).encode() for junk in JUNK)):
        (folder / "a.request").write_bytes(content)
        for request in requests.take():
            assert isinstance(request.folder, str)
        (folder / "a.answer").write_bytes(content.replace(b"folder", b"error"))
        answer = requests.find_answer("a")
        assert answer is None or isinstance(answer.error, str | None)
        (folder / "a.answer").unlink(missing_ok=True)
    requests.ask(Request("b", "x"))
    requests.answer(Request("b", "x"), Answer("key"))
    assert requests.find_answer("b") == Answer("key")


def modes(folder: Path) -> dict[str, int]:
    return {str(path): stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o177])
def test_all_kept_files_are_private_under_any_umask(tmp_path: Path, log: LogBuilder, umask: int) -> None:
    root = tmp_path / "new" / "state"
    before = os.umask(umask)
    try:
        requests = Requests(str(root))
        requests.prepare()
        requests.ask(Request("one", "x"))
        ReplicaSet(str(root / "log")).add("replica", "memory://r")
        daemon = Daemon(log, MemoryStore("memory://r"), str(root / "log" / "replica"))
        while daemon.sync():
            pass
        save_replicated(daemon.state, "0" * 16, ())
        sequence_base.write_tombstone(str(root / "log"), sequence_base.Tombstone("a", 1), tombstone_disk())
        _scrub(Path(daemon.state), daemon.store).run(threading.Event())
        daemon.close()
    finally:
        os.umask(before)
    found = modes(tmp_path / "new")
    assert len(found) >= 12
    assert scrubbing.FILE in map(os.path.basename, found)
    assert {path: mode for path, mode in found.items() if mode != (0o700 if os.path.isdir(path) else 0o600)} == {}


def test_a_umask_that_takes_the_owners_rights_keeps_no_daemon_out(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        make_private(str(tmp_path / "folder"))
        write_private(str(tmp_path / "folder" / "file"), b"x")
        os.close(open_lock(str(tmp_path / "folder" / "lock")))
    finally:
        os.umask(before)
    assert list(modes(tmp_path / "folder").values()) == [0o700, 0o600, 0o600]


def tombstone_disk() -> Any:
    from litelog.log.disk import LocalDisk

    return LocalDisk()


def test_state_folders_that_others_may_enter_are_closed_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state" / "log-0123456789abcdef" / "replica"
    folder.mkdir(parents=True)
    for path in (folder, folder.parent, folder.parent.parent):
        path.chmod(0o755)
    for name in (VERDICTS_FILE, VERDICTS_LOCK):
        (tmp_path / "state" / name).touch()
    Requests(str(tmp_path / "state")).prepare()
    ReplicaSet(str(folder.parent)).add("replica", "memory://r")
    StateFolder(str(folder), "test").close()
    StateFolder(str(folder), "test").close()
    assert {mode for path, mode in modes(tmp_path / "state").items() if os.path.isdir(path)} == {0o700}
    said = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "state-closed"]
    assert said == [
        f"{path}: others could enter it (mode 0755); only its owner can from now on"
        for path in (folder.parent.parent, folder.parent, folder)
    ]


def test_a_shared_state_root_stays_open_and_the_folders_below_are_private(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    (shared / "events").mkdir()
    Requests(str(shared)).prepare()
    assert (modes(shared)[str(shared)], modes(shared)[f"{shared}/requests"]) == (0o755, 0o700)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all users may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_another_users_state_folder_is_refused(shared: Path) -> None:
    folder = shared / "state"
    folder.mkdir(mode=0o755)
    os.chown(folder, 12345, 12345)
    with pytest.raises(
        StateError, match=r"cannot keep state here \(belongs to user 12345, and this runs as user root\)"
    ):
        StateFolder(str(folder), "test")
    make_private_root(str(folder), lambda name: True)  # a volume: what is below it is ours
    assert modes(folder) == {str(folder): 0o755}
    make_private(str(shared / "below"))
    with as_user(12345):
        with pytest.raises(StateError, match="belongs to user root, and this runs as user 12345"):
            StateFolder(str(shared / "below"), "test")
        make_private_root(str(folder), lambda name: False)
    os.chown(folder, 12346, 12346)
    with as_user(12345), pytest.raises(PermissionError, match="belongs to user 12346"):
        make_private_root(str(folder), lambda name: True)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")
def test_state_is_kept_where_the_file_system_calls_this_user_another_one(shared: Path) -> None:
    """As root on NFS, whose files belong to another user."""
    shared.chmod(0o777)

    def open_twice() -> None:
        for _ in range(2):
            StateFolder(str(shared / "state"), "test").close()
        assert (shared / "state").stat().st_uid == 12345

    run_where_files_belong_to(12345, open_twice)
    assert os.listdir(shared / "state") == ["lock"]
