"""The suite for object stores: tests of their five methods."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

from litelog.errors import ExistsError, NotFoundError
from litelog.stores.object_store import ByteRange, ObjectInfo
from replica_clients.conformance.checks import (
    THREADS,
    Stream,
    assert_raises,
    digest,
    digest_of,
    fill,
    listed,
    read,
)

if TYPE_CHECKING:
    from litelog.stores.object_store import ObjectStore

NO_KEYS = ("", ".", "..", "/", "/a", "a/", "a//b", "../a", "a/../../b", "a/./b", "a/..", "a\0b")


class ObjectStoreConformance:
    """Tests of the five methods. The fixture ``store`` returns an empty store, new for each test."""

    many = 1050
    """Objects in the test of long listings: more than one page of S3's."""
    large_bytes = 20 << 20
    """Size of the large object in bytes: more than the usual limit of a WAL segment."""

    def test_a_put_object_can_be_read(self, store: ObjectStore) -> None:
        store.put("a/b/c", [b"one", bytearray(b", two"), memoryview(b", three")])
        assert read(store, "a/b/c") == b"one, two, three"

    def test_an_object_may_be_empty(self, store: ObjectStore) -> None:
        store.put("none", [])
        store.put("empty", [b"", b""])
        assert (read(store, "none"), read(store, "empty")) == (b"", b"")
        assert list(store.list("")) == [ObjectInfo("empty", 0), ObjectInfo("none", 0)]

    def test_an_object_may_be_of_many_buffers(self, store: ObjectStore) -> None:
        pieces = [bytes([n % 251]) * (n % 7) for n in range(3000)]
        store.put("pieces", pieces)
        assert read(store, "pieces") == b"".join(pieces)

    def test_a_large_object_comes_back_whole(self, store: ObjectStore) -> None:
        half = os.urandom(self.large_bytes // 2)
        store.put("large", [half, half])
        assert digest(store, "large") == digest_of([half, half])
        assert read(store, "large", ByteRange(len(half) - 5, 10)) == half[-5:] + half[:5]

    def test_a_body_may_be_produced_while_it_is_sent(self, store: ObjectStore) -> None:
        piece = os.urandom(1 << 20)
        lengths = [1, 0, 9, *range(0, len(piece), len(piece) // 7), *[len(piece)] * (self.large_bytes >> 20)]
        body = Stream(lambda: (piece[:length] for length in lengths))
        store.put("streamed", body)
        store.put("small", Stream(lambda: [b"one", b", two"]))
        store.put("none", Stream(list))
        assert digest(store, "streamed") == digest_of(body)
        assert (read(store, "small"), read(store, "none")) == (b"one, two", b"")

    def test_a_streamed_body_does_not_replace(self, store: ObjectStore) -> None:
        store.put("key", [b"first"])
        large = Stream(lambda: [bytes(1 << 20)] * (self.large_bytes >> 20))
        for body in (Stream(lambda: [b"second"]), large):
            assert_raises(ExistsError, lambda body=body: store.put("key", body))  # type: ignore[misc]
        assert read(store, "key") == b"first"

    def test_a_body_that_fails_leaves_nothing(self, store: ObjectStore) -> None:
        pieces = self.large_bytes >> 20
        for count in (0, 1, pieces // 2, pieces):
            body = Stream(lambda count=count: [bytes(1 << 20)] * count, LookupError("the source"))  # type: ignore[misc]
            assert_raises(LookupError, lambda body=body: store.put("a/key", body))  # type: ignore[misc]
        assert_raises(NotFoundError, lambda: read(store, "a/key"))
        assert listed(store) == []
        store.put("a/key", Stream(lambda: [b"whole"]))
        assert read(store, "a/key") == b"whole"

    def test_a_missing_object_is_not_found(self, store: ObjectStore) -> None:
        store.put("a/b", [b"x"])
        for key in ("missing", "a", "a/b/c", "a/bb"):
            assert_raises(NotFoundError, lambda key=key: read(store, key))  # type: ignore[misc]

    def test_a_taken_key_is_refused_and_unchanged(self, store: ObjectStore) -> None:
        store.put("key", [b"first"])
        assert_raises(ExistsError, lambda: store.put("key", [b"second, and longer"]))
        assert_raises(ExistsError, lambda: store.put("key", [b"first"]))
        assert read(store, "key") == b"first"
        assert list(store.list("")) == [ObjectInfo("key", 5)]

    def test_a_put_that_may_replace_replaces(self, store: ObjectStore) -> None:
        store.put("key", [b"first"], create_only=False)
        store.put("key", [b"second"], create_only=False)
        assert read(store, "key") == b"second"

    def test_of_many_writers_exactly_one_wins(self, store: ObjectStore) -> None:
        if not store.enforces_create_only:
            return
        for attempt in range(5):
            key, start = f"race/{attempt}", threading.Barrier(THREADS)

            def write(writer: int, key: str = key, start: threading.Barrier = start) -> int | None:
                start.wait()
                try:
                    store.put(key, [bytes([writer]) * 1000])
                except ExistsError:
                    return None
                return writer

            with ThreadPoolExecutor(THREADS) as pool:
                winners = [writer for writer in pool.map(write, range(THREADS)) if writer is not None]
            assert len(winners) == 1
            assert read(store, key) == bytes(winners) * 1000

    def test_nothing_partial_is_ever_visible(self, store: ObjectStore) -> None:
        size, count, done = 300_000, 12, threading.Event()

        def watch() -> int:
            seen = 0
            while True:
                last = done.is_set()
                for info in store.list("part/"):
                    assert info.size == size
                    body = read(store, info.key)
                    assert len(body) == size
                    assert body == body[:1] * size
                    seen += 1
                if last:
                    return seen

        with ThreadPoolExecutor(2) as pool:
            watchers = [pool.submit(watch) for _ in range(2)]
            try:
                for number in range(count):
                    store.put(f"part/{number:02}", [bytes([number + 1]) * (size // 2)] * 2)
            finally:
                done.set()
            assert all(watcher.result() >= count for watcher in watchers)

    def test_ranges(self, store: ObjectStore) -> None:
        store.put("digits", [b"0123456789"])
        wanted = {
            (0, 0): b"",
            (0, 1): b"0",
            (3, 4): b"3456",
            (9, 1): b"9",
            (0, 10): b"0123456789",
            (4, None): b"456789",
        }
        for (start, length), expected in wanted.items():
            assert read(store, "digits", ByteRange(start, length)) == expected

    def test_ranges_across_and_after_the_end_are_short(self, store: ObjectStore) -> None:
        store.put("digits", [b"0123456789"])
        store.put("empty", [])
        wanted = {(8, 5): b"89", (0, 11): b"0123456789", (10, 1): b"", (10, None): b"", (11, 5): b"", (999, None): b""}
        for (start, length), expected in wanted.items():
            assert read(store, "digits", ByteRange(start, length)) == expected
        assert read(store, "empty", ByteRange(0, 5)) == b""
        assert_raises(NotFoundError, lambda: read(store, "missing", ByteRange(0, 1)))

    def test_a_stream_is_read_in_pieces(self, store: ObjectStore) -> None:
        body = os.urandom(100_000)
        store.put("body", [body])
        pieces = []
        with store.open("body", ByteRange(1, 99_998)) as stream:
            while piece := stream.read(30_000):
                pieces.append(piece)
        assert [len(piece) for piece in pieces] == [30_000, 30_000, 30_000, 9_998]
        assert b"".join(pieces) == body[1:-1]

    def test_an_empty_store_lists_nothing(self, store: ObjectStore) -> None:
        for prefix in ("", "missing", "missing/folder/"):
            assert list(store.list(prefix)) == []
            assert list(store.list(prefix, "m")) == []

    def test_a_listing_is_in_the_order_of_keys(self, store: ObjectStore) -> None:
        keys = [
            "a",
            "b.c",
            "b/c",
            "b0",
            "b/a/z",
            "b/a.z",
            "b-/x",
            "B",
            "z/y/x/w",
            "b/é",
            "b/z",
            "b/~",
            "b/\uffee",
            "b/😀",
        ]
        for key in keys:
            store.put(key, [b"x" * len(key)])
        assert list(store.list("")) == [ObjectInfo(key, len(key)) for key in sorted(keys)]

    def test_a_prefix_may_end_inside_a_name(self, store: ObjectStore) -> None:
        keys = ["ab", "abc/d", "abd", "ac", "b/ab", "abc/e/f"]
        fill(store, keys)
        for prefix in ("", "a", "ab", "abc", "abc/", "abc/d", "abc/d/", "abc/e/", "b/a", "c", "abcd"):
            assert listed(store, prefix) == sorted(key for key in keys if key.startswith(prefix))

    def test_start_after_excludes_itself_and_may_be_missing(self, store: ObjectStore) -> None:
        keys = ["a.b", "a/1", "a/2", "a/3", "b/1/2", "b/1/3", "b0", "c"]
        fill(store, keys)
        for after in [*keys, "", "a", "a/", "a/0", "a/1x", "a/9", "a0", "b/1", "b/1/", "b/1/2x", "b/2", "zzz"]:
            assert listed(store, "", after) == [key for key in keys if key > after]
            assert listed(store, "b/", after) == [key for key in keys if key > after and key.startswith("b/")]

    def test_a_listing_is_longer_than_a_page(self, store: ObjectStore) -> None:
        keys = [f"many/{number // 100:04}/{number % 100:04}" for number in range(self.many)]
        fill(store, reversed(keys))
        assert listed(store, "many/") == keys
        assert listed(store, "many/", keys[-3]) == keys[-2:]
        assert [info.key for info in islice(store.list("many/"), 3)] == keys[:3]

    def test_deleted_objects_are_gone(self, store: ObjectStore) -> None:
        fill(store, ["a/1", "a/2", "b"])
        store.delete(["a/1", "b"])
        assert listed(store) == ["a/2"]
        assert_raises(NotFoundError, lambda: read(store, "a/1"))

    def test_deleting_a_missing_object_does_nothing(self, store: ObjectStore) -> None:
        store.delete(["missing", "missing/too"])
        store.delete([])
        fill(store, ["a/1"])
        store.delete(["a/2", "b/1", "a/1/x", "a"])
        assert listed(store) == ["a/1"]

    def test_many_are_deleted_at_once(self, store: ObjectStore) -> None:
        keys = [f"bulk/{number:04}" for number in range(self.many)]
        fill(store, keys)
        store.delete(key for key in keys if key != "bulk/0007")
        assert listed(store) == ["bulk/0007"]

    def test_a_deleted_key_can_be_put_again(self, store: ObjectStore) -> None:
        for round_number in range(3):
            store.put("deep/in/folders/key", [bytes([round_number])])
            assert read(store, "deep/in/folders/key") == bytes([round_number])
            store.delete(["deep/in/folders/key"])
        assert listed(store) == []

    def test_puts_and_deletes_in_one_folder_do_not_disturb_each_other(self, store: ObjectStore) -> None:
        def work(worker: int) -> None:
            for number in range(20):
                key = f"shared/folder/{worker}-{number}"
                store.put(key, [key.encode()])
                assert read(store, key) == key.encode()
                if number % 4:
                    store.delete([key])

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
        assert listed(store) == sorted(
            f"shared/folder/{worker}-{n}" for worker in range(THREADS) for n in range(0, 20, 4)
        )

    def test_a_key_never_leaves_the_store(self, store: ObjectStore) -> None:
        for key in NO_KEYS:
            for call in (
                lambda key=key: store.put(key, [b"x"]),
                lambda key=key: store.open(key),
                lambda key=key: store.delete([key]),
            ):
                assert_raises(ValueError, call)
        for prefix in ("/", "/etc/", "../", "a/../", "a//"):
            assert_raises(ValueError, lambda prefix=prefix: list(store.list(prefix)))  # type: ignore[misc]
        assert listed(store) == []

    def test_closing_twice_is_fine(self, store: ObjectStore) -> None:
        store.put("key", [b"x"])
        store.close()
        store.close()

    def test_the_url_names_the_store(self, store: ObjectStore) -> None:
        assert "://" in store.url
