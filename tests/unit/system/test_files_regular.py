"""litelog opens only regular files. It refuses a named pipe in place of a file, and never waits for it."""

from __future__ import annotations

import ast
import fcntl
import os
import signal
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from litelog.config import load_config
from litelog.errors import ConfigError, LitelogError, SourceError, SourceMissingError
from litelog.formats.litelog import LitelogFormat
from litelog.log.disk import LocalDisk
from litelog.log.recovery import recover
from litelog.log.replica_registry import read_replicated
from litelog.log.sequence_base import read_tombstone, write_tombstone
from litelog.log.source import SegmentFolder
from litelog.log.sparse_index import IndexReader, IndexWriter
from litelog.log.writer import LogWriter
from litelog.replicator.snapshot_requests import Requests
from litelog.server.token_file import TokenFile
from litelog.shipping.state import StateError, StateFolder, read_state
from litelog.system.clock import SystemClock
from litelog.system.files import NotRegularError, TooLargeError, open_regular, read_regular
from litelog.verify.local_compare import check_log
from litelog_cli.config_file import CREDENTIALS, Variables
from litelog_cli.daemon_client import DaemonAnswerError, DaemonClient
from replica_clients.memory import MemoryStore
from replica_clients.s3.settings import read_settings
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import LOG_ID, LogBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIPE = "is a named pipe, not a regular file"
SECONDS = 120
"""Seconds after which a test that waits for a named pipe fails."""


def at_once(work: Callable[[], Any]) -> Any:
    """The result or the exception of ``work``, which may not wait for a named pipe."""
    done: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            done.append((work(), None))
        except BaseException as error:  # noqa: BLE001
            done.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert done, "it waits for the named pipe"
    result, error = done[0]
    if error is not None:
        raise error
    return result


@pytest.fixture
def pipe(tmp_path: Path) -> str:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    return path


def become_pipe(path: str) -> None:
    """Put a named pipe in a file's place."""
    os.mkfifo(f"{path}.pipe")
    os.rename(f"{path}.pipe", path)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT | os.O_TRUNC])
@pytest.mark.parametrize(
    ("kind", "words"), [(stat.S_IFIFO, "a named pipe"), (stat.S_IFSOCK, "a socket"), (stat.S_IFDIR, "a folder")]
)
def test_open_regular_names_the_kind_of_any_other_file(tmp_path: Path, flags: int, kind: int, words: str) -> None:
    path = str(tmp_path / "it")
    os.mkdir(path) if kind == stat.S_IFDIR else os.mknod(path, kind | 0o600)
    for name, folder in ((path, None), ("it", os.open(tmp_path, os.O_RDONLY))):
        with pytest.raises(NotRegularError, match=f"is {words}, not a regular file") as caught:
            at_once(lambda name=name, folder=folder: open_regular(name, flags, dir_fd=folder))
        assert caught.value.filename == name
        assert caught.value.is_folder == (kind == stat.S_IFDIR)
        if folder is not None:
            os.close(folder)


def test_a_device_is_refused() -> None:
    with pytest.raises(NotRegularError, match="is a device"):
        open_regular(os.devnull, os.O_WRONLY | os.O_TRUNC)


def test_a_link_is_followed_only_where_it_may_be(tmp_path: Path, pipe: str) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "astray").symlink_to(pipe)
    assert read_regular(str(tmp_path / "link"), 7) == b"content"
    with pytest.raises(NotRegularError, match="is a symbolic link"):
        open_regular(str(tmp_path / "link"), os.O_RDONLY | os.O_NOFOLLOW)
    with pytest.raises(NotRegularError, match=PIPE):
        at_once(lambda: read_regular(str(tmp_path / "astray"), 7))
    with pytest.raises(TooLargeError, match="is larger than 6 bytes"):
        read_regular(str(tmp_path / "link"), 6)


def test_a_refused_open_leaves_no_descriptor(pipe: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with pytest.raises(NotRegularError):
            open_regular(pipe)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_a_file_server_holds_a_lease_on_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "leased"
    path.write_bytes(b"content")
    with path.open("r+b") as holder:
        given_back = []

        def give_back(*_: object) -> None:
            given_back.append(True)
            fcntl.fcntl(holder.fileno(), fcntl.F_SETLEASE, fcntl.F_UNLCK)

        before = signal.signal(signal.SIGIO, give_back)
        try:
            fcntl.fcntl(holder.fileno(), fcntl.F_SETLEASE, fcntl.F_WRLCK)
            assert read_regular(str(path), 7) == b"content"
        finally:
            signal.signal(signal.SIGIO, before)
    assert given_back


def test_a_live_daemon_says_that_its_newest_log_segment_became_a_pipe(log: LogBuilder, tmp_path: Path) -> None:
    daemon = Daemon(log, MemoryStore("memory://r"), str(tmp_path / "state"))
    daemon.sync()
    os.rename(log.path(), tmp_path / "aside")
    os.mkfifo(log.path())
    with pytest.raises(SourceError, match=f"{log.path()}: cannot be opened: {PIPE}"):
        at_once(daemon.sync)
    daemon.restart()
    with pytest.raises(SourceError, match=PIPE):
        at_once(daemon.sync)
    os.rename(tmp_path / "aside", log.path())
    log.append(2)
    daemon.sync()
    assert daemon.replica.position is not None
    assert daemon.replica.position.offset == os.path.getsize(log.path())
    daemon.close()


def test_a_pipe_with_the_name_of_the_next_log_segment_is_skipped_with_a_warning(
    log: LogBuilder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = Daemon(log, MemoryStore("memory://r"), str(tmp_path / "state"))
    daemon.sync()
    os.mkfifo(log.path(f"{log.next:020d}.log"))
    log.append(1)
    at_once(daemon.sync)
    daemon.close()
    said = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "file-skipped"]
    assert said == [f"{log.folder}: skipped {log.next - 1:020d}.log, which is a named pipe, not a regular file"]


@pytest.mark.parametrize(
    "work",
    [
        lambda log: LogWriter(log.folder),
        lambda log: recover(log.folder, LocalDisk(), "trim"),
        lambda log: check_log(log.folder, log.format),
    ],
    ids=["writer", "recovery", "verify"],
)
def test_a_log_segment_that_is_a_pipe_is_refused(log: LogBuilder, work: Callable[[LogBuilder], Any]) -> None:
    become_pipe(log.path())
    with pytest.raises((LitelogError, OSError)) as caught:
        at_once(lambda: work(log))
    assert PIPE in str(caught.value)
    assert log.path() in str(caught.value)


def test_a_folder_whose_only_log_segment_is_a_pipe_says_so(tmp_path: Path) -> None:
    name = "00000000000000000000.log"
    os.mkfifo(tmp_path / name)
    with pytest.raises(SourceMissingError, match=rf"holds no log segment .* \({name} {PIPE}\)"):
        at_once(SegmentFolder(str(tmp_path), LitelogFormat(), SystemClock()).require_log)


def test_a_pipe_in_the_place_of_a_log_s_small_files_is_refused(log: LogBuilder, tmp_path: Path) -> None:
    for name in (".lock", ".tombstone", ".tombstone.tmp", log.name.replace(".log", ".index")):
        os.mkfifo(log.path(name))
    with at_once(lambda: IndexReader(log.path(), LOG_ID)) as index:
        assert index.before(0) is None
    at_once(lambda: IndexWriter(log.path(), LOG_ID).close())
    assert at_once(lambda: read_tombstone(log.folder)) is None
    at_once(lambda: write_tombstone(log.folder, _tombstone(), LocalDisk()))
    assert read_tombstone(log.folder) == _tombstone()
    with pytest.raises(SourceError, match=PIPE):
        at_once(lambda: LogWriter(log.folder))


def _tombstone() -> Any:
    from litelog.log.sequence_base import Tombstone

    return Tombstone("a", 0)


def test_other_users_cannot_lock_a_log_or_read_private_files(log: LogBuilder) -> None:
    """A user who may read a file may also lock it, and so keep its writer out."""
    Path(log.path(".lock")).touch(0o644)
    before = os.umask(0)
    try:
        LogWriter(log.folder).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(log.path(".lock")).st_mode) == 0o600


def test_a_pipe_in_the_place_of_state_is_lost_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with StateFolder(str(tmp_path / "state"), "test") as folder:
        for name in ("state.json", "replicated.json"):
            os.mkfifo(f"{folder.path}/{name}")
        assert at_once(folder.load) is None
        assert at_once(lambda: read_state(folder.path)) is None
        assert at_once(lambda: read_replicated(folder.path)) == {}
    assert f"{folder.path}/state.json: cannot be used: {PIPE}" in caplog.text


def test_a_pipe_in_the_place_of_a_lock_or_a_request_is_refused(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "state", 0o700)
    os.mkfifo(tmp_path / "state" / "lock")
    with pytest.raises(StateError, match=PIPE):
        at_once(lambda: StateFolder(str(tmp_path / "state"), "test"))
    requests = Requests(str(tmp_path / "dir"))
    requests.prepare()
    for name in ("one.request", "one.answer"):
        os.mkfifo(f"{requests.folder}/{name}")
    assert at_once(lambda: requests.find_answer("one")) is None
    assert at_once(lambda: list(requests.take())) == []
    assert not os.path.exists(f"{requests.folder}/one.request")


def test_a_pipe_in_the_place_of_a_secret_is_refused(tmp_path: Path, pipe: str) -> None:
    for work in (
        lambda: TokenFile(pipe),
        lambda: Variables({CREDENTIALS: str(tmp_path)})["pipe"],
        lambda: read_settings("s3://bucket", {"sse-customer-key-file": pipe}),
        lambda: read_settings("s3://bucket", {"ca-bundle": pipe}),
    ):
        with pytest.raises(ConfigError, match=PIPE):
            at_once(work)
    with pytest.raises(DaemonAnswerError, match=PIPE):
        at_once(lambda: DaemonClient("127.0.0.1:1", pipe)._headers())


def test_configuration_is_read_from_a_pipe_that_a_shell_passes(tmp_path: Path, pipe: str) -> None:
    text = f"logs: [{{path: {tmp_path}/log, replicas: [{{url: 'file://{tmp_path}/replica'}}]}}]"
    with ThreadPoolExecutor(1) as writer:
        written = writer.submit(Path(pipe).write_text, text)
        assert [log.path for log in load_config(Path(pipe), {}).logs] == [f"{tmp_path}/log"]
        assert written.result(10)


SOURCES = Path(__file__).parents[3]
NEW_OR_FOLDER = ("O_EXCL", "O_DIRECTORY", "OPEN_FOLDER", "_FOLDER_FLAGS", "_FILE_FLAGS", "O_TMPFILE", "self._flags")
"""The flags of an open that cannot find a named pipe, since it needs a new file or a folder."""
KNOWN = {
    "litelog/system/files.py": "the helper itself",
    "litelog/system/clock.py": "a file of the kernel's",
    "litelog/system/resident.py": "files of the kernel's",
    "litelog/native/library.py": "litelog's own source",
    "litelog/config/loading.py": "the file that a person names, which may be a pipe",
    "litelog/spark/wrappers.py": "the user's own cache",
    "litelog/spark/jobs/compact_task.py": "a file that this process made in a private folder",
    "litelog/spark/jobs/table_file.py": "a file that this process made in a private folder",
    "cmd/litelog_cli/main.py": "the standard streams",
    "cmd/litelog_cli/event_lines.py": "the standard streams",
    "cmd/litelog_cli/verbs/demo.py": "files that this process made",
    "litelog/log/broker_snapshot.py": "the stream that a person names, which may be a pipe; files that must be new",
    "replica_clients/fsspec/creation.py": "a file that must be new",
    "replica_clients/s3/model_files.py": "a file of the package botocore",
}


def opens_of(path: Path) -> Iterator[str]:
    """The calls in a module that open a path, as they are written."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in ("open", "os.open", "io.open") and not ast.unparse(node).startswith("open(descriptor"):
            yield ast.unparse(node)


@pytest.mark.slow
def test_all_that_is_opened_by_name_is_opened_by_the_helper_or_must_be_new() -> None:
    found: dict[str, list[str]] = {}
    for folder in ("litelog", "replica_clients", "cmd"):
        for path in sorted((SOURCES / folder).rglob("*.py")):
            for call in opens_of(path):
                if not any(word in call for word in NEW_OR_FOLDER):
                    found.setdefault(str(path.relative_to(SOURCES)), []).append(call)
    assert found.keys() == KNOWN.keys()
