"""The fsspec store: what it takes, how schemes reach it, what it says of failures, and where it does not fence."""

from __future__ import annotations

import tomllib
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fsspec")

from fsspec.implementations.memory import MemoryFileSystem

from litelog.errors import ConfigError, ExistsError, StoreError, UnknownSchemeError
from litelog.layout import Fencing
from litelog.registry import open_store as open_by_url
from litelog.shipping.fencing import NotCreateOnlyError
from replica_clients.conformance.checks import listed, read
from replica_clients.file import FileStore
from replica_clients.fsspec import FsspecStore, open_store
from replica_clients.fsspec_creation import choose_creation
from replica_clients.memory import MemoryStore
from tests.independent_reader import read_replica
from tests.unit.daemon_builder import Daemon
from tests.unit.log_builder import make_log

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
CANARY = "canary-of-the-tests"


class FlatFileSystem(MemoryFileSystem):
    """A file system of which nothing is known; it fails when told to."""

    protocol = "flat"
    failure: Exception | None = None
    cachable = False

    def __init__(self, secret_key: str = "", **options: object) -> None:
        super().__init__(**options)
        self.secret_key = secret_key

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: object) -> None:
        if self.failure:
            raise self.failure
        super().pipe_file(path, value, mode, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: object) -> bytes:
        content: bytes = super().cat_file(path, start, end, **options)
        return content[:-1] if self.failure else content


@pytest.fixture
def flat() -> Iterator[FsspecStore]:
    store = FsspecStore("flat://x", f"/{uuid.uuid4()}", lambda: FlatFileSystem(CANARY), [CANARY])
    yield store
    FlatFileSystem.failure = None
    store.close()


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our entry points as the project declares them, whether it is installed or not."""
    folder = tmp_path / "site" / "ours-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    groups = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in names.items())
        for group, names in groups.items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.mark.usefixtures("ours")
def test_a_scheme_of_ours_stays_ours_unless_fsspec_is_asked_for(tmp_path: Path) -> None:
    assert isinstance(open_by_url(f"file://{tmp_path}"), FileStore)
    assert isinstance(open_by_url("memory://mine"), MemoryStore)
    with closing(open_by_url("fsspec+memory://mine/x")) as store:
        assert isinstance(store, FsspecStore)
        assert store.url == "memory://mine/x"


@pytest.mark.usefixtures("ours")
def test_any_scheme_that_fsspec_knows_is_taken(tmp_path: Path) -> None:
    with closing(open_by_url(f"LOCAL://{tmp_path}/logs")) as store:
        assert isinstance(store, FsspecStore)
        store.put("a/key", [b"x"])
    assert (tmp_path / "logs" / "a" / "key").read_bytes() == b"x"


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize("url", ["gopher://x/y", "fsspec+gopher://x/y"])
def test_a_scheme_that_nobody_knows_lists_the_known_ones(url: str) -> None:
    with pytest.raises(UnknownSchemeError, match="known: file, memory, s3"):
        open_by_url(url)


@pytest.mark.usefixtures("ours")
def test_a_package_that_fsspec_needs_is_named() -> None:
    with pytest.raises(UnknownSchemeError, match="tosfs"):
        open_by_url("tos://bucket/x")


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("http://host/x", {}, "only be read"),
        ("simplecache::memory://x", {}, "no replica client|without caches"),
        ("filecache://x", {}, "without caches or chains"),
        (f"sftp://me:{CANARY}@host/x", {}, "takes no secrets"),
        (f"memory://x?sas_token={CANARY}", {}, "takes no secrets"),
        ("memory://x", {"use-listings-cache": True}, "set by litelog itself"),
        ("sftp://host/x", {"no_such_option": CANARY}, "sftp"),
    ],
)
def test_what_cannot_be_a_replica_is_refused(url: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        open_store(url, options)
    assert CANARY not in str(caught.value)


def test_stores_say_whether_they_fence(flat: FsspecStore, tmp_path: Path) -> None:
    assert not flat.fences
    assert open_store(f"file://{tmp_path}", {}).fences
    assert open_store("memory://x", {}).fences
    assert FileStore(str(tmp_path)).fences
    assert MemoryStore().fences


@pytest.mark.parametrize("protocol", ["s3", "s3a", "gs", "gcs", "abfs", "az", "abfss", "memory", "file", "local"])
def test_what_refuses_a_second_writer_fences(protocol: str) -> None:
    assert choose_creation(frozenset({protocol})).fences


@pytest.mark.parametrize("protocol", ["sftp", "ssh", "smb", "hdfs", "arrow_hdfs", "ftp", "webdav", "hf", "oss", "adl"])
def test_whatever_else_there_is_does_not(protocol: str) -> None:
    assert not choose_creation(frozenset({protocol})).fences


def test_a_replica_that_is_not_fenced_is_used_isolated(flat: FsspecStore, tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(3)
    with pytest.raises(NotCreateOnlyError, match=r"two may do so at once.*fencing: isolated"):
        Daemon(log, flat, str(tmp_path / "required")).sync()
    assert listed(flat) == []
    for number in range(2):
        log.append(1)
        state = str(tmp_path / f"isolated{number}")
        Daemon(log, flat, state, seed=number, takeover=True, fencing=Fencing.ISOLATED).sync()
    generations = read_replica(flat)
    assert [name[:8] for name in generations] == ["00000001", "00000002"]
    assert list(generations.values())[-1].files() == log.files()


def test_a_store_that_does_not_fence_still_looks_first(flat: FsspecStore) -> None:
    flat.put("key", [b"first"])
    with pytest.raises(ExistsError):
        flat.put("key", [b"second"])
    assert read(flat, "key") == b"first"


@pytest.mark.parametrize(
    ("failure", "retryable"),
    [
        (OSError("connection reset"), True),
        (TimeoutError("slow"), True),
        (RuntimeError("an SDK's own"), True),
        (PermissionError("forbidden"), False),
        (NotImplementedError("read-only"), False),
    ],
)
def test_an_error_of_the_file_system_says_whether_it_may_pass(
    flat: FsspecStore, failure: Exception, retryable: bool
) -> None:
    FlatFileSystem.failure = failure
    with pytest.raises(StoreError, match=f"put key: flat://x: {type(failure).__name__}: {failure}") as caught:
        flat.put("key", [b"x"])
    assert caught.value.retryable is retryable


def test_secrets_in_an_error_are_not_repeated(flat: FsspecStore) -> None:
    FlatFileSystem.failure = OSError(f"GET https://x/y?sig=c2lnbmF0dXJl&x=1 with {CANARY} failed")
    with pytest.raises(StoreError, match="failed") as caught:
        flat.put("key", [b"x"])
    shown = f"{caught.value} {caught.value.__cause__} {flat!r}"
    assert CANARY not in shown
    assert "c2lnbmF0dXJl" not in shown


def test_a_short_read_is_an_error_and_no_end(flat: FsspecStore) -> None:
    flat.put("key", [b"0123456789"])
    stream = flat.open("key")
    FlatFileSystem.failure = OSError()
    with pytest.raises(StoreError, match="9 bytes came where 10") as caught:
        stream.read()
    assert caught.value.retryable


def test_what_others_put_there_shows_at_once(flat: FsspecStore) -> None:
    """No listing is remembered."""
    flat.put("a/1", [b"x"])
    assert listed(flat) == ["a/1"]
    FlatFileSystem().pipe_file(f"{flat._root}/a/2", b"y")
    assert listed(flat) == ["a/1", "a/2"]
    assert flat._file_system().dircache.use_listings_cache is True  # the maker's own choice
    assert open_store("memory://x", {})._file_system().dircache.use_listings_cache is False


def test_leftovers_of_a_crash_are_not_listed(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}", {})
    store.put("a/key", [b"x"])
    (tmp_path / "a" / ".litelog-1-2.tmp").write_bytes(b"half")
    assert listed(store) == ["a/key"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".litelog-1-2.tmp", "key"]
