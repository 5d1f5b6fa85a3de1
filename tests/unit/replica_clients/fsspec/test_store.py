"""The fsspec store: its options, how schemes reach it, how it reports failures, and where it does not fence."""

from __future__ import annotations

import importlib.util
import threading
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

import pytest

pytest.importorskip("fsspec")

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from litelog.errors import ConfigError, ExistsError, NotFoundError, StoreError, UnknownSchemeError
from litelog.objects.layout import Fencing
from litelog.shipping.claiming import NotCreateOnlyError
from litelog.stores.object_store import ByteRange
from litelog.stores.registry import open_store as open_by_url
from replica_clients.conformance.checks import listed, read
from replica_clients.file import FileStore
from replica_clients.fsspec import FsspecStore, open_store
from replica_clients.fsspec.creation import choose_creation
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import make_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CANARY = "canary-of-the-tests"


class FlatFileSystem(MemoryFileSystem):
    """A file system of which nothing is known. It fails on request."""

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


class Server:
    """The server to which DialledFileSystem connects. When it stops, all connections break."""

    def __init__(self) -> None:
        self.up = True
        self.refusal: Exception = ConnectionRefusedError("nobody listens")
        self.dialled: list[Connection] = []

    def stop(self) -> None:
        self.up = False
        for connection in self.dialled:
            connection.broken = True


class Connection:
    """A connection that stays broken, as paramiko's do."""

    def __init__(self, server: Server) -> None:
        if not server.up:
            raise server.refusal
        self.broken = self.closed = False
        server.dialled.append(self)

    def require(self) -> None:
        if self.broken:
            raise OSError("Socket is closed")

    def close(self) -> None:
        self.closed = True
        raise OSError("it was broken before")


class DialledFileSystem(MemoryFileSystem):
    """A file system that connects only once, when it is created."""

    protocol = "dialled"
    cachable = False

    def __init__(self, server: Server, **options: object) -> None:
        super().__init__(**options)
        self.client = Connection(server)

    def ls(self, path: str, detail: bool = True, **options: object) -> object:
        self.client.require()
        return super().ls(path, detail, **options)

    def info(self, path: str, **options: object) -> object:
        self.client.require()
        return super().info(path, **options)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: object) -> None:
        self.client.require()
        super().pipe_file(path, value, mode, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: object) -> object:
        self.client.require()
        return super().cat_file(path, start, end, **options)

    def rm_file(self, path: str) -> None:
        self.client.require()
        super().rm_file(path)


def dial(server: Server) -> FsspecStore:
    return FsspecStore("dialled://x", f"/{uuid.uuid4()}", DialledFileSystem, lambda: DialledFileSystem(server))


@pytest.fixture
def flat() -> Iterator[FsspecStore]:
    store = FsspecStore("flat://x", f"/{uuid.uuid4()}", FlatFileSystem, lambda: FlatFileSystem(CANARY), [CANARY])
    yield store
    FlatFileSystem.failure = None
    store.close()


def test_litelogs_own_scheme_is_used_unless_fsspec_is_requested(tmp_path: Path) -> None:
    assert isinstance(open_by_url(f"file://{tmp_path}"), FileStore)
    assert isinstance(open_by_url("memory://mine"), MemoryStore)
    with closing(open_by_url("fsspec+memory://mine/x")) as store:
        assert isinstance(store, FsspecStore)
        assert store.url == "memory://mine/x"


def test_any_scheme_that_fsspec_knows_is_taken(tmp_path: Path) -> None:
    with closing(open_by_url(f"LOCAL://{tmp_path}/logs")) as store:
        assert isinstance(store, FsspecStore)
        store.put("a/key", [b"x"])
    assert (tmp_path / "logs" / "a" / "key").read_bytes() == b"x"


@pytest.mark.parametrize("url", ["gopher://x/y", "fsspec+gopher://x/y"])
def test_an_unknown_scheme_lists_the_known_ones(url: str) -> None:
    with pytest.raises(UnknownSchemeError, match=r"known: file, .*memory, s3"):
        open_by_url(url)


@pytest.mark.slow
def test_a_package_that_fsspec_needs_is_named() -> None:
    with pytest.raises(UnknownSchemeError, match="tosfs"):
        open_by_url("tos://bucket/x")


@pytest.mark.skipif(importlib.util.find_spec("s3fs") is not None, reason="s3fs is installed")
def test_a_driver_that_fsspec_lacks_is_named_and_no_client_that_there_is() -> None:
    with pytest.raises(ConfigError, match=r"^fsspec\+s3://: fsspec lacks a package for it: Install s3fs"):
        open_by_url("fsspec+s3://bucket/x")


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("http://host/x", {}, "is read-only"),
        ("simplecache::memory://x", {}, "no replica client|without caches"),
        ("filecache://x", {}, "without caches or chains"),
        (f"sftp://me:{CANARY}@host/x", {}, "takes no secrets"),
        (f"memory://x?sas_token={CANARY}", {}, "takes no secrets"),
        ("memory://x", {"use-listings-cache": True}, "set by litelog itself"),
        ("sftp://host/x", {"no_such_option": CANARY}, "sftp"),
    ],
)
def test_urls_and_options_that_cannot_be_used_are_refused(url: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        open_store(url, options)
    assert CANARY not in str(caught.value)


def test_stores_say_whether_they_fence(flat: FsspecStore, tmp_path: Path) -> None:
    assert not flat.enforces_create_only
    assert open_store(f"file://{tmp_path}", {}).enforces_create_only
    assert open_store("memory://x", {}).enforces_create_only
    assert FileStore(str(tmp_path)).enforces_create_only
    assert MemoryStore().enforces_create_only


@pytest.mark.parametrize("protocol", ["s3", "s3a", "gs", "gcs", "abfs", "az", "abfss", "memory", "file", "local"])
def test_file_systems_that_refuse_a_second_writer_fence(protocol: str) -> None:
    assert choose_creation(frozenset({protocol})).enforces_create_only


@pytest.mark.parametrize("protocol", ["sftp", "ssh", "smb", "hdfs", "arrow_hdfs", "ftp", "webdav", "hf", "oss", "adl"])
def test_all_other_file_systems_do_not_fence(protocol: str) -> None:
    assert not choose_creation(frozenset({protocol})).enforces_create_only


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


@pytest.mark.slow
def test_of_objects_that_are_made_as_they_are_put_one_is_in_memory_at_a_time(flat: FsspecStore) -> None:
    """No such file system accepts a stream and refuses a second writer, so the store holds each object whole."""
    began = threading.Event()

    def first() -> Iterator[bytes]:
        other.start()
        yield b"1"
        assert not began.wait(0.1), "the second object was made while the first one was in memory"
        yield b"2"

    def second() -> Iterator[bytes]:
        began.set()
        yield b"3"

    other = threading.Thread(target=lambda: flat.put("b", second()))
    flat.put("a", first())
    other.join()
    assert (read(flat, "a"), read(flat, "b")) == (b"12", b"3")


class SweepingFileSystem(FlatFileSystem):
    """Deletes a folder with its content, as WebDAV servers do."""

    protocol = "sweeping"

    def rm_file(self, path: str) -> None:
        for found in self.find(path):
            super().rm_file(found)


def test_a_folder_is_never_deleted_by_a_key() -> None:
    store = FsspecStore("sweeping://x", f"/{uuid.uuid4()}", SweepingFileSystem, lambda: SweepingFileSystem(CANARY))
    store.put("a/b/c", [b"x"])
    store.delete(["a/b", "a", "a/b/c/d"])
    assert listed(store) == ["a/b/c"]
    store.delete(["a/b/c"])
    assert listed(store) == []


class SparingFileSystem(FlatFileSystem):
    """Refuses to delete a folder as a file, as SFTP servers do."""

    protocol = "sftp"

    def rm_file(self, path: str) -> None:
        if self.isdir(path):
            raise OSError("Failure")
        super().rm_file(path)


def test_a_server_that_refuses_to_delete_a_folder_is_not_a_failure() -> None:
    store = FsspecStore("sftp://x", f"/{uuid.uuid4()}", SparingFileSystem, lambda: SparingFileSystem(CANARY))
    store.put("a/b", [b"x"])
    store.delete(["a", "a/b"])
    assert listed(store) == []


class OutrunFileSystem(FlatFileSystem):
    """Another client makes each folder just before this one, which then fails, as with SFTP servers."""

    protocol = "sftp"
    outrun: ClassVar[list[str]] = []

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            folder = "/" + "/".join(parts[:depth])
            if not self.isdir(folder):
                self.mkdir(folder, create_parents=False)
                self.outrun.append(folder)
                raise OSError("Failure")


def test_two_that_make_the_same_folders_both_succeed() -> None:
    root = f"/{uuid.uuid4()}"
    store = FsspecStore("sftp://x", root, OutrunFileSystem, lambda: OutrunFileSystem(CANARY))
    store.put("generations/g/wal/1", [b"x"])
    assert listed(store) == ["generations/g/wal/1"]
    assert OutrunFileSystem.outrun == [f"{root}{rest}" for rest in ("", *_parents("/generations/g/wal"))]


def _parents(path: str) -> list[str]:
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]


def test_a_folder_that_cannot_be_made_is_an_error() -> None:
    class FullFileSystem(FlatFileSystem):
        protocol = "sftp"

        def makedirs(self, path: str, exist_ok: bool = False) -> None:
            raise OSError("No space left on device")

    store = FsspecStore("sftp://x", f"/{uuid.uuid4()}", FullFileSystem, lambda: FullFileSystem(CANARY))
    with pytest.raises(StoreError, match="put a/key: sftp://x: OSError: No space left on device"):
        store.put("a/key", [b"x"])


class WholeFileSystem(FlatFileSystem):
    """Ignores ranges and returns the whole file, as the package sshfs does."""

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: object) -> bytes:
        return MemoryFileSystem.cat_file(self, path)  # type: ignore[no-any-return]


def test_a_file_system_without_ranges_is_read_by_ranges_all_the_same() -> None:
    store = FsspecStore("flat://x", f"/{uuid.uuid4()}", WholeFileSystem, lambda: WholeFileSystem(CANARY))
    store.put("key", [b"0123456789"])
    with store.open("key", ByteRange(2, 3)) as stream:
        assert stream.read(1) + stream.read() == b"234"


def test_a_short_read_is_an_error_and_no_end(flat: FsspecStore) -> None:
    flat.put("key", [b"0123456789"])
    stream = flat.open("key")
    FlatFileSystem.failure = OSError()
    with pytest.raises(StoreError, match="9 bytes came instead of the 10") as caught:
        stream.read()
    assert caught.value.retryable


def test_objects_of_other_writers_show_at_once(flat: FsspecStore) -> None:
    """The store does not cache listings."""
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


REQUESTS: dict[str, Callable[[FsspecStore], object]] = {
    "put": lambda store: store.put("new", [b"x"]),
    "open": lambda store: store.open("key"),
    "list": listed,
    "delete": lambda store: store.delete(["key"]),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_after_an_outage_a_thread_connects_again(request_: Callable[[FsspecStore], object]) -> None:
    server = Server()
    store = dial(server)
    store.put("key", [b"x"])
    server.stop()
    with pytest.raises(StoreError, match="Socket is closed") as caught:
        request_(store)
    assert caught.value.retryable
    with pytest.raises(StoreError, match="connect: dialled://x: ConnectionRefusedError") as caught:
        request_(store)
    assert caught.value.retryable
    server.up = True
    request_(store)
    first, second = server.dialled
    assert first.closed
    assert not second.closed


def test_a_stream_continues_over_a_new_connection() -> None:
    server = Server()
    store = dial(server)
    store.put("key", [b"0123456789"])
    stream = store.open("key")
    assert stream.read(4) == b"0123"
    server.stop()
    server.up = True
    with pytest.raises(StoreError, match="Socket is closed"):
        stream.read(4)
    assert stream.read() == b"456789"


def test_an_answer_ends_no_connection() -> None:
    server = Server()
    store = dial(server)
    store.put("key", [b"x"])
    with pytest.raises(ExistsError):
        store.put("key", [b"x"])
    with pytest.raises(NotFoundError):
        store.open("missing")
    store.delete(["missing"])
    assert listed(store, "missing/") == []
    assert len(server.dialled) == 1


def test_a_server_that_is_down_at_the_start_is_waited_for() -> None:
    server = Server()
    server.up = False
    store = dial(server)
    assert (store.url, store.enforces_create_only) == ("dialled://x", False)
    for failure in (
        FileNotFoundError("the private key"),
        EOFError("no banner"),
        caused(ValueError("Failed to connect"), OSError("Network is unreachable")),
    ):
        server.refusal = failure
        with pytest.raises(StoreError, match=str(failure)) as caught:
            listed(store)
        assert caught.value.retryable
    server.up = True
    assert listed(store) == []


@pytest.mark.parametrize("failure", [TypeError("no such option"), ValueError("bad policy"), ImportError("no driver")])
def test_options_that_a_connection_does_not_take_are_a_configuration_error(failure: Exception) -> None:
    server = Server()
    server.up, server.refusal = False, failure
    with pytest.raises(ConfigError, match=f"^dialled://x: {type(failure).__name__}: {failure}"):
        listed(dial(server))


def test_options_that_a_file_system_does_not_take_are_refused_before_it_connects() -> None:
    fsspec.register_implementation("refusing", f"{__name__}.RefusingFileSystem", clobber=True)
    with pytest.raises(ConfigError, match=r"refusing://: .*'colour'"):
        open_store("refusing://x", {"colour": CANARY})
    assert open_store("refusing://x", {"flavour": CANARY}).url == "refusing://x"


class RefusingFileSystem(MemoryFileSystem):
    protocol = "refusing"
    cachable = False

    def __init__(self, flavour: str = "") -> None:
        raise ConnectionRefusedError(flavour)


class BucketFileSystem(MemoryFileSystem):
    """Buckets, and names in them that look like folders."""

    protocol = ("s3", "s3a")
    cachable = False

    def __init__(self, buckets: set[str], refusals: dict[str, Exception], asked: list[str]) -> None:
        super().__init__()
        self.buckets = buckets
        self.refusals = refusals
        self.asked = asked

    def require(self, what: str, path: str) -> bool:
        """Whether ``path`` is only a bucket's name."""
        bucket, _, key = path.strip("/").partition("/")
        if not key:
            self.asked.append(what)
            if what in self.refusals:
                raise self.refusals[what]
        if bucket not in self.buckets:
            raise FileNotFoundError("The specified bucket does not exist")
        return not key

    def ls(self, path: str, detail: bool = True, **options: object) -> object:
        if self.require("ls", path):
            return []
        return super().ls(path, detail, **options)

    def info(self, path: str, **options: object) -> object:
        if self.require("info", path):
            return {"name": path, "size": 0, "type": "directory"}
        return super().info(path, **options)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: object) -> None:
        self.require("put", path)
        super().pipe_file(path, value, mode, **options)


class Buckets:
    """A store in a bucket that exists or not."""

    def __init__(self, *there: str, **refusals: Exception) -> None:
        self.there = set(there)
        self.asked: list[str] = []
        self.store = FsspecStore(
            "s3://mine/logs",
            f"mine/{uuid.uuid4()}",
            BucketFileSystem,
            lambda: BucketFileSystem(self.there, refusals, self.asked),
        )


@pytest.mark.parametrize("refusals", [{}, {"info": PermissionError("403")}, {"info": OSError("Forbidden")}])
def test_a_bucket_that_is_not_there_is_not_an_empty_replica(refusals: dict[str, Exception]) -> None:
    setup = Buckets("another", **refusals)
    advice = "s3://mine/logs: bucket mine does not exist: create it, or correct the replica's URL"
    for request in (lambda: listed(setup.store, "epochs/"), lambda: setup.store.put("key", [b"x"])):
        with pytest.raises(StoreError, match=advice) as caught:
            request()
        assert not caught.value.retryable
    setup.there.add("mine")
    assert listed(setup.store, "epochs/") == []
    setup.store.put("key", [b"x"])
    assert listed(setup.store) == ["key"]
    setup.there.clear()
    with pytest.raises(StoreError, match=f"put other: {advice}"):
        setup.store.put("other", [b"x"])


@pytest.mark.parametrize(
    ("refusals", "asked"),
    [
        ({}, ["info"]),
        ({"info": OSError("Forbidden")}, ["info", "ls"]),
        ({"info": FileNotFoundError("gcsfs, of an empty one")}, ["info", "ls"]),
        ({"info": PermissionError("403"), "ls": PermissionError("403")}, ["info", "ls"]),
    ],
)
def test_a_bucket_that_is_there_is_looked_for_once(refusals: dict[str, Exception], asked: list[str]) -> None:
    setup = Buckets("mine", **refusals)
    assert listed(setup.store, "epochs/") == []
    assert listed(setup.store, "generations/") == []
    assert setup.asked == asked


def test_a_look_for_a_bucket_that_fails_says_nothing_of_it() -> None:
    setup = Buckets("mine", info=OSError("reset"), ls=OSError("reset"))
    with pytest.raises(StoreError, match="OSError: reset") as caught:
        listed(setup.store, "epochs/")
    assert caught.value.retryable


def test_a_folder_that_is_not_there_is_an_empty_replica(tmp_path: Path) -> None:
    assert listed(open_store(f"file://{tmp_path}/not/there", {})) == []
    assert listed(open_store("memory://not-there/either", {})) == []
    assert listed(dial(Server())) == []


class AuthenticationException(Exception):  # noqa: N818
    """An exception with the name that paramiko uses."""


def test_a_user_that_the_server_refuses_needs_help() -> None:
    server = Server()
    server.up, server.refusal = False, AuthenticationException("Authentication failed.")
    with pytest.raises(StoreError, match="Authentication failed") as caught:
        dial(server).put("key", [b"x"])
    assert not caught.value.retryable


@pytest.mark.slow
def test_a_file_system_of_all_threads_that_cannot_be_made_yet_is_made_later() -> None:
    class Shared(DialledFileSystem):
        protocol = ("memory", "shared")

    server = Server()
    server.up = False
    store = FsspecStore("shared://x", f"/{uuid.uuid4()}", Shared, lambda: Shared(server))
    with pytest.raises(StoreError, match="nobody listens"):
        listed(store)
    server.up = True
    store.put("key", [b"x"])
    assert listed(store) == ["key"]
    assert len(server.dialled) == 1


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error
