"""The suite for replica clients, the interface that the library uses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

from litelog.errors import ExistsError, NotFoundError
from litelog.objects.layout import claim_key, sealed_key, snapshot_key, wal_key
from litelog.objects.position import ClaimName, Generation, Position
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.replica_client import IndexedInfo, WalSegmentInfo
from replica_clients.conformance.checks import THREADS, Stream, assert_raises, fill, foreign_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.stores.replica_client import ReplicaClient

OLDER = Generation("0000000100000000")
NEWER = Generation("00000002ffffffff")


class ReplicaClientConformance:
    """Tests of the library's interface. The fixture ``client`` returns a client over an empty store, new for each test.

    The tests of foreign names do nothing for a client that is not an ObjectReplicaClient, since they need its store.
    """

    def test_an_empty_replica_lists_nothing(self, client: ReplicaClient) -> None:
        assert client.claims() == []
        assert client.generations() == []
        assert list(client.wal_segments(OLDER)) == []
        assert list(client.wal_segments(OLDER, Position(OLDER, 3, 4))) == []
        assert list(client.sealed_segments(OLDER)) == []
        assert list(client.snapshots(OLDER)) == []

    def test_written_objects_can_be_read(self, client: ReplicaClient) -> None:
        client.write_claim(ClaimName(1), b"claim")
        client.write_wal_segment(Position(OLDER, 0, 0), [b"wal ", b"segment"])
        client.write_snapshot(OLDER, 0, [b"snapshot"])
        client.write_sealed_segment(OLDER, 3, Stream(lambda: [b"sealed ", b"segment"]))
        assert client.read_claim(ClaimName(1)) == b"claim"
        assert client.read_sealed_segment(OLDER, 3, 0, 14) == b"sealed segment"
        assert client.read_sealed_segment(OLDER, 3, 7, 3) == b"seg"
        assert client.read_sealed_segment(OLDER, 3, 12, 30) == b"nt"
        assert client.read_wal_segment(Position(OLDER, 0, 0)) == b"wal segment"
        assert client.read_wal_segment(Position(OLDER, 0, 0), 4, 3) == b"seg"
        assert client.read_wal_segment(Position(OLDER, 0, 0), 8, 30) == b"ent"
        assert client.read_wal_segment(Position(OLDER, 0, 0), 4) == b"segment"
        assert client.read_snapshot(OLDER, 0) == b"snapshot"

    def test_a_sealed_segment_is_read_as_a_stream(self, client: ReplicaClient) -> None:
        client.write_sealed_segment(OLDER, 1, [b"0123456789"])
        for start, length, expected in ((0, None, b"0123456789"), (4, None, b"456789"), (4, 3, b"456"), (8, 9, b"89")):
            with closing(client.open_sealed_segment(OLDER, 1, start, length)) as stream:
                assert stream.read(2) + stream.read() == expected

    def test_a_missing_object_is_not_found(self, client: ReplicaClient) -> None:
        client.write_sealed_segment(NEWER, 0, [b"of another generation"])
        assert_raises(NotFoundError, lambda: client.read_sealed_segment(OLDER, 0, 0, 1))
        assert_raises(NotFoundError, lambda: client.read_sealed_segment(NEWER, 1, 0, 1))
        assert_raises(NotFoundError, lambda: client.open_sealed_segment(OLDER, 0).read())
        assert_raises(NotFoundError, lambda: client.read_claim(ClaimName(1)))
        assert_raises(NotFoundError, lambda: client.read_wal_segment(Position(OLDER, 0, 0)))
        assert_raises(NotFoundError, lambda: client.read_snapshot(OLDER, 0))

    def test_everything_is_written_once(self, client: ReplicaClient) -> None:
        position, isolated = Position(NEWER, 7, 8), ClaimName(9, NEWER)
        writes: tuple[Callable[[bytes], None], ...] = (
            lambda body: client.write_claim(isolated, body),
            lambda body: client.write_claim(ClaimName(9), body),
            lambda body: client.write_wal_segment(position, [body]),
            lambda body: client.write_snapshot(NEWER, 7, [body]),
            lambda body: client.write_sealed_segment(NEWER, 7, Stream(lambda: [body])),
        )
        for write in writes:
            write(b"first")
            assert_raises(ExistsError, lambda write=write: write(b"second"))  # type: ignore[misc]
            assert_raises(ExistsError, lambda write=write: write(b"first"))  # type: ignore[misc]
        assert client.read_claim(ClaimName(9)) == client.read_claim(isolated) == b"first"
        assert client.read_wal_segment(position) == client.read_snapshot(NEWER, 7) == b"first"
        assert client.read_sealed_segment(NEWER, 7, 0, 99) == b"first"

    def test_an_empty_generation_is_an_error(self, client: ReplicaClient) -> None:
        for name in (Generation(""), Generation("../00000001000000"), Generation("0000000100000000/wal")):
            for call in (
                lambda name=name: list(client.wal_segments(name)),
                lambda name=name: list(client.sealed_segments(name)),
                lambda name=name: list(client.snapshots(name)),
                lambda name=name: client.write_wal_segment(Position(name, 0, 0), [b"x"]),
                lambda name=name: client.read_wal_segment(Position(name, 0, 0)),
                lambda name=name: client.delete_wal_segments([Position(name, 0, 0)]),
                lambda name=name: client.write_snapshot(name, 0, [b"x"]),
                lambda name=name: client.read_snapshot(name, 0),
                lambda name=name: client.delete_snapshots([(name, 0)]),
                lambda name=name: client.newest_snapshots(name, 1),
                lambda name=name: client.write_sealed_segment(name, 0, [b"x"]),
                lambda name=name: client.read_sealed_segment(name, 0, 0, 1),
                lambda name=name: client.open_sealed_segment(name, 0),
                lambda name=name: client.delete_sealed_segments([(name, 0)]),
            ):
                assert_raises(ValueError, call)
        assert client.generations() == []

    def test_epochs_and_generations_ascend(self, client: ReplicaClient) -> None:
        for epoch in (300, 2, 0xFFFFFFFF, 16, 1):
            client.write_claim(ClaimName(epoch), b"claim")
        client.write_snapshot(NEWER, 0, [b"x"])
        client.write_wal_segment(Position(OLDER, 5, 5), [b"x"])
        client.write_wal_segment(Position(NEWER, 0, 0), [b"x"])
        assert client.claims() == [ClaimName(epoch) for epoch in (1, 2, 16, 300, 0xFFFFFFFF)]
        assert client.generations() == [OLDER, NEWER]

    def test_claims_are_listed_by_epoch_then_by_generation(self, client: ReplicaClient) -> None:
        names = [
            ClaimName(1),
            *(ClaimName(2, Generation(f"00000002{number:08x}")) for number in (0, 9, 10, 0xFFFFFFFF)),
            ClaimName(3),
            ClaimName(3, Generation("00000003aaaaaaaa")),
            ClaimName(16, Generation("0000001000000000")),
            ClaimName(0xFFFFFFFF, Generation("ffffffffffffffff")),
        ]
        for number, name in reversed(list(enumerate(names))):
            client.write_claim(name, b"%d" % number)
        assert client.claims() == names
        assert [client.read_claim(name) for name in names] == [b"%d" % number for number in range(len(names))]
        for since in (0, 1, 2, 3, 4, 16, 17, 0xFFFFFFFF):
            assert client.claims(since) == [name for name in names if name.epoch >= since]

    def test_a_claim_without_a_name_is_an_error(self, client: ReplicaClient) -> None:
        for name in (ClaimName(-1), ClaimName(1 << 32), ClaimName(1, Generation("")), ClaimName(1, Generation("../x"))):
            assert_raises(ValueError, lambda name=name: client.write_claim(name, b"x"))  # type: ignore[misc]
            assert_raises(ValueError, lambda name=name: client.read_claim(name))  # type: ignore[misc]
        assert client.claims() == []

    def test_wal_segments_are_listed_in_order_with_their_sizes(self, client: ReplicaClient) -> None:
        places = [(0, 0), (0, 9), (0, 10), (0, 255), (0, 256), (1, 0), (9, 0), (10, 0), (16, 1 << 40), (1 << 63, 3)]
        positions = [Position(OLDER, *place) for place in places]
        for number, position in reversed(list(enumerate(positions))):
            client.write_wal_segment(position, [b"x" * number])
        client.write_wal_segment(Position(NEWER, 0, 0), [b"of another generation"])
        found = list(client.wal_segments(OLDER))
        assert [info.position for info in found] == positions
        assert [info.size for info in found] == list(range(len(positions)))

    def test_a_listing_since_a_position_includes_it(self, client: ReplicaClient) -> None:
        positions = [Position(OLDER, index, offset) for index in (0, 1, 15, 16) for offset in (0, 9, 16, 4096)]
        for position in positions:
            client.write_wal_segment(position, [b"x"])
        between = [Position(OLDER, 0, 1), Position(OLDER, 2, 0), Position(OLDER, 16, 4097), Position(OLDER, 99, 0)]
        for since in [*positions, *between]:
            found = [info.position for info in client.wal_segments(OLDER, since)]
            assert found == [position for position in positions if position >= since]

    def test_snapshots_are_listed_in_order(self, client: ReplicaClient) -> None:
        for index in (16, 0, 9, 10):
            client.write_snapshot(OLDER, index, [b"x" * index])
        found = [(info.generation, info.index, info.size) for info in client.snapshots(OLDER)]
        assert found == [(OLDER, index, index) for index in (0, 9, 10, 16)]

    def test_the_newest_snapshots_come_first(self, client: ReplicaClient) -> None:
        assert client.newest_snapshots(OLDER, 3) == []
        client.write_snapshot(NEWER, 99, [b"of another generation"])
        for index in (255, 0, 256, 16):
            client.write_snapshot(OLDER, index, [b"x"])
        for count, expected in ((1, [256]), (3, [256, 255, 16]), (9, [256, 255, 16, 0])):
            assert [info.index for info in client.newest_snapshots(OLDER, count)] == expected

    def test_snapshots_and_wal_segments_come_in_one_listing(self, client: ReplicaClient) -> None:
        positions = [Position(OLDER, 7, 0), Position(OLDER, 7, 300), Position(OLDER, 16, 0)]
        for index in (16, 7):
            client.write_snapshot(OLDER, index, [b"snapshot"])
            client.write_sealed_segment(OLDER, index, [b"sealed"])
        for position in positions:
            client.write_wal_segment(position, [b"wal"])
        client.write_wal_segment(Position(NEWER, 0, 0), [b"x"])
        client.write_snapshot(NEWER, 0, [b"x"])
        expected = [*(IndexedInfo(OLDER, index, 8) for index in (7, 16)), *(WalSegmentInfo(at, 3) for at in positions)]
        assert list(client.snapshots_and_wal_segments(OLDER)) == expected
        assert list(client.snapshots_and_wal_segments(OLDER, 8)) == expected[1:]
        assert list(client.snapshots_and_wal_segments(Generation("00000003000000ff"))) == []

    def test_sealed_segments_are_listed_in_order_with_their_sizes(self, client: ReplicaClient) -> None:
        indexes = [0, 1, 9, 10, 15, 16, 255, 256, 1 << 40]
        for size, index in reversed(list(enumerate(indexes))):
            client.write_sealed_segment(OLDER, index, [b"x" * size])
        client.write_sealed_segment(NEWER, 3, [b"of another generation"])
        found = [(info.generation, info.index, info.size) for info in client.sealed_segments(OLDER)]
        assert found == [(OLDER, index, size) for size, index in enumerate(indexes)]

    def test_a_listing_since_an_index_includes_it(self, client: ReplicaClient) -> None:
        indexes = (0, 1, 15, 16, 300)
        for index in indexes:
            client.write_sealed_segment(OLDER, index, [b"x"])
            client.write_snapshot(OLDER, index, [b"x"])
        for since in (*indexes, 2, 17, 301):
            expected = [index for index in indexes if index >= since]
            assert [info.index for info in client.sealed_segments(OLDER, since)] == expected
            assert [info.index for info in client.snapshots(OLDER, since)] == expected

    def test_deleting_removes_the_named_wal_segments_and_nothing_else(self, client: ReplicaClient) -> None:
        positions = [Position(OLDER, index, 0) for index in range(4)]
        for position in positions:
            client.write_wal_segment(position, [b"x"])
        client.delete_wal_segments([positions[0], Position(OLDER, 0, 1), Position(NEWER, 0, 0), positions[2]])
        client.delete_wal_segments([])
        assert [info.position for info in client.wal_segments(OLDER)] == [positions[1], positions[3]]

    def test_deleting_sealed_segments_and_snapshots_removes_these_and_nothing_else(self, client: ReplicaClient) -> None:
        position = Position(OLDER, 1, 0)
        client.write_wal_segment(position, [b"x"])
        for index in range(4):
            client.write_sealed_segment(OLDER, index, [b"x"])
            client.write_snapshot(OLDER, index, [b"x"])
        client.delete_sealed_segments([(OLDER, 1), (OLDER, 9), (NEWER, 0)])
        client.delete_snapshots([(OLDER, 3), (NEWER, 0)])
        client.delete_sealed_segments([])
        client.delete_snapshots([])
        assert [info.index for info in client.sealed_segments(OLDER)] == [0, 2, 3]
        assert [info.index for info in client.snapshots(OLDER)] == [0, 1, 2]
        assert [info.position for info in client.wal_segments(OLDER)] == [position]
        assert_raises(NotFoundError, lambda: client.read_sealed_segment(OLDER, 1, 0, 1))

    def test_foreign_names_are_skipped(self, client: ReplicaClient) -> None:
        if not isinstance(client, ObjectReplicaClient):
            return
        position = Position(OLDER, 1, 2)
        client.write_wal_segment(position, [b"wal"])
        client.write_snapshot(OLDER, 1, [b"snapshot"])
        client.write_claim(ClaimName(1), b"claim")
        client.write_sealed_segment(OLDER, 1, [b"sealed"])
        client.write_claim(ClaimName(1, OLDER), b"isolated")
        ours = (wal_key(position), snapshot_key(OLDER, 1), sealed_key(OLDER, 1), claim_key(1), claim_key(1, OLDER))
        fill(client.store, foreign_names(*ours))
        assert [info.position for info in client.wal_segments(OLDER)] == [position]
        assert [info.position for info in client.wal_segments(OLDER, position)] == [position]
        assert [(info.index, info.size) for info in client.snapshots(OLDER)] == [(1, 8)]
        assert [(info.index, info.size) for info in client.newest_snapshots(OLDER, 2)] == [(1, 8)]
        assert [(info.index, info.size) for info in client.sealed_segments(OLDER)] == [(1, 6)]
        assert client.claims() == [ClaimName(1), ClaimName(1, OLDER)]
        assert client.generations() == [OLDER]

    def test_a_folder_with_only_foreign_names_is_not_a_generation(self, client: ReplicaClient) -> None:
        if not isinstance(client, ObjectReplicaClient):
            return
        fill(client.store, [f"generations/{OLDER}/note.txt", f"generations/{OLDER}/wal/x", "generations/lost+found/y"])
        client.write_snapshot(NEWER, 0, [b"x"])
        assert client.generations() == [NEWER]

    def test_several_threads_write_and_read_at_once(self, client: ReplicaClient) -> None:
        def work(worker: int) -> None:
            for number in range(10):
                position = Position(OLDER, worker, number)
                client.write_wal_segment(position, [str(position).encode()])
                assert client.read_wal_segment(position) == str(position).encode()

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
        found = [info.position for info in client.wal_segments(OLDER)]
        assert found == [Position(OLDER, worker, number) for worker in range(THREADS) for number in range(10)]

    def test_closing_twice_is_fine(self, client: ReplicaClient) -> None:
        client.close()
        client.close()
