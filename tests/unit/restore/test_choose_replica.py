"""Restores from several replicas of one log: which replica is chosen, and how lost bytes are replaced."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import ConfigError, CorruptionError, ExitCode, LitelogError, NothingToRestoreError, StoreError
from litelog.formats.lines import LinesFormat
from litelog.formats.raw import RawFormat
from litelog.objects.claim import Relation
from litelog.objects.layout import claim_key, parse_wal, snapshot_key, wal_key
from litelog.restore.choose_replica import DivergedReplicasError, choose
from litelog.restore.execution import restore
from litelog.restore.history_plan import GenerationPrunedError, Target
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.replica_builder import FORMAT, SECOND, ReplicaBuilder, make_log, make_segment, prefix
from tests.builders.restoring import files_in
from tests.sampling import examples, sampled, sampled_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.restore.choose_replica import ReplicaChoice
    from litelog.restore.execution import RestoreResult
    from litelog.stores.object_store import ByteRange
    from tests.builders.replica_builder import GenerationBuilder, LogSegment

LINES, RAW = LinesFormat("*.log"), RawFormat("*.log")
FORMATS = {"litelog": FORMAT, "lines": LINES, "raw": RAW}
SHAPE = [[2, 1, 3], [1, 2], [3, 1, 1]]
LOG = make_log(SHAPE)
TOTAL = LOG[-1].next


class DownStore:
    """Fails every request, or every one from the ``whole``-th read of a WAL segment on."""

    enforces_create_only = True

    def __init__(self, url: str, inner: MemoryStore | None = None, whole: int = 0) -> None:
        self.url, self.inner, self.whole = url, inner, whole

    def _check(self) -> None:
        if self.inner is None or self.whole <= 0:
            raise StoreError("open", "x", "no route to host", retryable=False)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._check()
        self.whole -= parse_wal(key) is not None and byte_range is None
        return self.inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[Any]:
        self._check()
        return self.inner.list(prefix, start_after)


def client(objects: dict[str, bytes], name: str) -> ObjectReplicaClient:
    store = MemoryStore(name)
    for key, body in objects.items():
        store.put(key, [body])
    return ObjectReplicaClient(store)


def ship(
    built: GenerationBuilder,
    log: list[LogSegment],
    cuts: tuple[list[int] | tuple[Any, ...], ...],
    *,
    upto: int | None = None,
    digests: bool = True,
    final: str = "last",
) -> None:
    """Ship a log: ``cuts`` has the commits after which each log segment is cut, ``upto`` the number of commits."""
    for number, segment in enumerate(log):
        ends = segment.ends if upto is None else segment.ends[: max(0, upto)]
        if upto is not None:
            upto -= len(segment.ends)
        if not ends:
            return
        held = ends == segment.ends
        bounds = [0, *sorted({ends[cut] for cut in cuts[number] if cut < len(ends) - 1}), ends[-1]]
        for start, end in pairwise(bounds):
            facts = {}
            if digests:
                last = max([0, *(at for at in segment.ends if at < end)])
                begin = max(start, last)
                facts = {"check_start": begin, "check_digest": hashlib.sha256(segment.data[begin:end]).hexdigest()}
            is_final = held and end == bounds[-1] and final == "last" and number < len(log) - 1
            built.ship(segment.data[start:end], segment.name, final=is_final, **facts)
        if held and final == "empty" and number < len(log) - 1:
            built.ship(b"", segment.name, final=True)


def replica(
    cuts: tuple[list[int], list[int], list[int]] = ((), (), ()),
    *,
    upto: int | None = None,
    digests: bool = True,
    final: str = "last",
    first: int = 0,
    log: list[LogSegment] = LOG,
    owners: int = 1,
    **changes: Any,
) -> dict[str, bytes]:
    """The objects of a replica of the log. ``owners``: the number of generations, each of which holds all of it."""
    builder = ReplicaBuilder()
    for _ in range(owners):
        claim = replace(builder.claim(first=first), **changes)
        ship(builder.add(claim), log, cuts, upto=upto, digests=digests, final=final)
    return builder.objects()


ONE = replica(([0, 1], [0], [1]))
TWO = replica(([1], [], [0, 1]), first=5, owners=2)


def restore_from(
    clients: list[ObjectReplicaClient], output: Path, target: Target | None = None, **options: Any
) -> tuple[ReplicaChoice, RestoreResult]:
    choice = choose(clients, target or Target(), FORMATS.__getitem__)
    result = restore(
        choice.client, choice.plan, str(output), log_format=choice.log_format, fallbacks=choice.fallbacks, **options
    )
    return choice, result


def outcome(replicas: list[dict[str, bytes]], folder: Path, **options: Any) -> Any:
    """(the restored files, the choice, the result), or the error, after which the folder is empty."""
    clients = [client(objects, f"r{number}") for number, objects in enumerate(replicas)]
    try:
        choice, result = restore_from(clients, Path(folder) / "out", **options)
    except LitelogError as error:
        assert os.listdir(folder) == []
        return error
    found = files_in(Path(folder) / "out")
    for path in (Path(folder) / "out").iterdir():
        path.unlink()
    (Path(folder) / "out").rmdir()
    return found, choice, result


WHOLE = prefix(LOG, 99)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_replica_that_reaches_furthest_is_restored(tmp_path: Path, order: tuple[int, int]) -> None:
    held = [replica(([0], [0], [0]), upto=6), replica(first=7)]
    clients = [client(held[number], f"r{number}") for number in order]
    choice, result = restore_from(clients, tmp_path / "out")
    assert (choice.client.url, result.replica) == ("memory://r1", "memory://r1")
    assert files_in(tmp_path / "out") == WHOLE
    assert (result.repaired, choice.skipped) == ((), ())


def test_a_later_log_segment_is_further_than_a_larger_offset(tmp_path: Path) -> None:
    behind, ahead = replica(upto=3), replica(upto=4)
    assert outcome([behind, ahead], tmp_path)[0] == prefix(LOG, 4)


def test_of_two_replicas_with_one_end_the_one_that_begins_earlier_is_restored(tmp_path: Path) -> None:
    late = replica(log=LOG[1:])
    assert outcome([late, ONE], tmp_path)[0] == WHOLE


@pytest.mark.parametrize("sequence", range(1, TOTAL))
def test_a_sequence_is_restored_from_a_replica_that_reaches_it(tmp_path: Path, sequence: int) -> None:
    commits = [count for counts in SHAPE for count in counts]
    kept = max(n for n in range(len(commits) + 1) if sum(commits[:n]) <= sequence + 1)
    found = outcome([replica(upto=2), TWO], tmp_path, target=Target(sequence=sequence))
    assert found[0] == prefix(LOG, kept)


def test_a_time_is_restored_from_the_replica_with_most_data_up_to_it(tmp_path: Path) -> None:
    found = outcome([replica(upto=3), ONE], tmp_path, target=Target(timestamp=7 * SECOND))
    assert found[0] == prefix(LOG, 5)


def test_a_generation_is_restored_from_the_replica_that_has_it(tmp_path: Path) -> None:
    names = sorted({parse_wal(key).generation for key in TWO if parse_wal(key)})
    other = ReplicaBuilder()
    ship(other.add(replace(other.claim(), generation="00000001deadbeef")), LOG, ([], [], []))
    found = outcome([other.objects(), TWO], tmp_path, target=Target(generation=names[1]))
    assert found[0] == WHOLE
    assert found[1].plan.claim.generation == names[1]


def let_go(name: Any = "one") -> tuple[ObjectReplicaClient, GenerationBuilder]:
    """A client of two generations, and the first one, of which retention left only the objects that always stay."""
    builder = ReplicaBuilder()
    old = builder.add()
    ship(old, LOG, ([0], [0], [0]))
    ship(builder.add(), LOG, ([0], [0], [0]))
    builder.client.delete_wal_segments(old.positions[:-2])
    builder.client.delete_snapshots([(old.name, 0)])
    return client(builder.objects(), name), old


def test_of_a_generation_that_retention_took_there_is_nothing_to_restore() -> None:
    replica, old = let_go()
    with pytest.raises(GenerationPrunedError, match=rf"{old.name}: nothing can be .* retention deleted") as caught:
        choose([replica], Target(generation=old.name), FORMATS.__getitem__)
    assert caught.value.exit_code == ExitCode.NOTHING_TO_RESTORE


def test_a_generation_that_one_replica_has_pruned_is_restored_from_the_other(tmp_path: Path) -> None:
    gone, old = let_go()
    other = ReplicaBuilder()
    ship(other.add(old.claim), LOG, ([0], [0], [0]))
    restore_from([gone, client(other.objects(), "two")], tmp_path / "out", Target(generation=old.name))
    assert files_in(tmp_path / "out") == WHOLE


@pytest.mark.parametrize("lost", ["snapshot", "wal"])
def test_a_generation_that_lost_one_object_is_damaged_and_was_not_pruned(lost: str) -> None:
    builder = ReplicaBuilder()
    old = builder.add()
    ship(old, LOG, ([0], [0], [0]))
    ship(builder.add(), LOG, ([0], [0], [0]))
    builder.store.delete([snapshot_key(old.name, 0) if lost == "snapshot" else wal_key(old.positions[0])])
    with pytest.raises(CorruptionError):
        choose([client(builder.objects(), "one")], Target(generation=old.name), FORMATS.__getitem__)


def test_an_index_is_refused_where_it_means_two_log_segments(tmp_path: Path) -> None:
    clients = [client(ONE, "one"), client(replica(log=LOG[1:]), "two")]
    with pytest.raises(ConfigError, match=r"index 1 is .*memory://one.*memory://two"):
        choose(clients, Target(index=1), FORMATS.__getitem__)
    assert choose(clients[:1], Target(index=1), FORMATS.__getitem__).plan.files[-1].name == LOG[1].name
    alike = [client(ONE, "one"), client(replica(upto=4), "two")]
    assert choose(alike, Target(index=1), FORMATS.__getitem__).plan.files[-1].size == len(LOG[1].data)


@pytest.mark.parametrize("place", [0, 1])
def test_a_replica_that_is_down_or_empty_is_skipped_by_name(tmp_path: Path, place: int) -> None:
    for bad in (ObjectReplicaClient(DownStore("s3://down")), ObjectReplicaClient(MemoryStore("empty"))):
        clients = [client(ONE, "good")]
        clients.insert(place, bad)
        choice, _ = restore_from(clients, tmp_path / bad.url.rpartition("/")[2])
        assert [url for url, _ in choice.skipped] == [bad.url]
        assert files_in(tmp_path / bad.url.rpartition("/")[2]) == WHOLE


def test_if_no_replica_can_be_restored_all_are_named() -> None:
    clients = [ObjectReplicaClient(DownStore("s3://down")), ObjectReplicaClient(MemoryStore("empty"))]
    with pytest.raises(LitelogError, match=r"(?s)s3://down: .*no route.*memory://empty: no replica there") as caught:
        choose(clients, Target(), FORMATS.__getitem__)
    assert caught.value.exit_code == ExitCode.FAILURE
    with pytest.raises(NothingToRestoreError):
        choose([ObjectReplicaClient(MemoryStore(name)) for name in "ab"], Target(), FORMATS.__getitem__)


def test_another_logs_replica_is_refused_by_name(tmp_path: Path) -> None:
    found, choice, _ = outcome([ONE, _other_log()], tmp_path)
    assert found == WHOLE
    ((url, reason),) = choice.skipped
    assert url == "memory://r1"
    assert "f" * 32 in reason


def _other_log() -> dict[str, bytes]:
    builder = ReplicaBuilder()
    ship(builder.add(replace(builder.claim(), log="f" * 32)), [*LOG, make_segment(TOTAL, [5])], ([],) * 4)
    return builder.objects()


def test_another_logs_bytes_never_help_out(tmp_path: Path) -> None:
    damaged = dict(ONE)
    del damaged[wal_keys(ONE)[1]]
    error = outcome([damaged, _other_log()], tmp_path)
    assert isinstance(error, CorruptionError)


def fork(commits: int) -> list[LogSegment]:
    """The log up to a number of commits, then other commits of the same sizes, and one more."""
    log, left = [], commits
    for counts, segment in zip(SHAPE, LOG, strict=True):
        first = segment.next - sum(counts)
        forked = make_segment(first, counts, tag=b"x")
        kept = segment.ends[left - 1] if 0 < left <= len(segment.ends) else (0 if left <= 0 else len(segment.data))
        log.append(replace(forked, data=segment.data[:kept] + forked.data[kept:]))
        left -= len(counts)
    return [*log, make_segment(TOTAL, [1], tag=b"x")]


@pytest.mark.parametrize("digests", [True, False])
@pytest.mark.parametrize("commits", [0, 2, 3, 5, 7])
def test_diverged_histories_are_neither_mixed_nor_chosen_between(tmp_path: Path, commits: int, digests: bool) -> None:
    """The forked commits have the lengths, so CRC-32Cs, of the others: only their bytes differ."""
    builder = ReplicaBuilder()
    ship(builder.add(), fork(commits), ([0], [], [], []), digests=digests)
    error = outcome([replica(([0, 1], [0], [1]), digests=digests), builder.objects()], tmp_path)
    assert isinstance(error, DivergedReplicasError)
    assert "memory://r0" in str(error)
    assert "memory://r1" in str(error)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("known", [4, 8])
def test_a_history_that_another_replica_left_is_stale_even_if_it_reaches_further(
    tmp_path: Path, order: tuple[int, int], known: int
) -> None:
    later = ReplicaBuilder()
    ship(later.add(), LOG, ([0], [0], []), upto=known)
    shorter = fork(2)[:1]
    ship(later.add(later.claim(Relation.DIVERGED)), shorter, ([],))
    held = [ONE, later.objects()]
    found, choice, _ = outcome([held[number] for number in order], tmp_path)
    assert found == {shorter[0].name: shorter[0].data}
    assert [url for url, _ in choice.skipped] == [f"memory://r{order.index(0)}"]


def test_a_diverged_replica_never_helps_out(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    ship(builder.add(), fork(3), ([], [], [], []))
    forked = builder.objects()
    damaged = dict(ONE)
    del damaged[wal_keys(ONE)[0]]
    name = parse_wal(wal_keys(ONE)[0]).generation
    clients = [client(damaged, "one"), client(forked, "two")]
    forked_name = parse_wal(wal_keys(forked)[0]).generation
    assert name == forked_name  # both builders number generations alike, so the name does not distinguish the replicas
    with pytest.raises(LitelogError):
        restore_from(clients, tmp_path / "out")
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_bytes_of_a_history_that_forks_in_the_lost_object_are_not_taken(tmp_path: Path) -> None:
    """All undamaged parts are the same: only the SHA-256 in the lost object's header shows the difference."""
    one = replica(([], [0], []))
    other = ReplicaBuilder()
    ship(other.add(), fork(4), ([], [0], [], []), upto=5, digests=False)
    error = outcome([DAMAGES["data"](one, wal_keys(one)[2]), other.objects()], tmp_path)
    assert isinstance(error, CorruptionError), error
    assert wal_keys(one)[2] in str(error)
    true = replica(([], [0], []), upto=5, digests=False)
    assert outcome([DAMAGES["data"](one, wal_keys(one)[2]), true], tmp_path)[0] == WHOLE


def wal_keys(objects: dict[str, bytes]) -> list[str]:
    newest = max((parse_wal(key).generation for key in objects if parse_wal(key)), default=None)
    return sorted(key for key in objects if (at := parse_wal(key)) and at.generation == newest)


def flip(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


DAMAGES = {
    "deleted": lambda objects, key: {name: body for name, body in objects.items() if name != key},
    "empty": lambda objects, key: {**objects, key: b""},
    "cut": lambda objects, key: {**objects, key: objects[key][: len(objects[key]) // 2]},
    "cut by one": lambda objects, key: {**objects, key: objects[key][:-1]},
    "header": lambda objects, key: {**objects, key: flip(objects[key], 40)},
    "data": lambda objects, key: {**objects, key: flip(objects[key], len(objects[key]) - 20)},
    "harmless": lambda objects, key: {**objects, key: flip(objects[key], 0)},
    "another": lambda objects, key: {**objects, key: objects[(wal_keys(objects) or [key])[-1]]},
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("digests", [True, False])
@pytest.mark.parametrize("final", ["last", "empty"])
@pytest.mark.parametrize("further", [False, True])
def test_each_object_of_the_chosen_one_may_be_lost(
    tmp_path: Path, damage: str, digests: bool, final: str, further: bool
) -> None:
    """``further``: the other replica lacks the last commit, so it cannot be restored instead of the first."""
    one = replica(([0, 1], [0], [0]), digests=digests, final=final)
    two = replica(([1], [], [0, 1]), upto=7 if further else None, digests=digests, first=5, owners=2)
    for key in sampled(list(one), 12, f"objects that are lost: {damage}, {digests}, {final}, {further}"):
        newest = key == wal_keys(one)[-1]
        found = outcome([DAMAGES[damage](one, key), two], tmp_path, parallelism=2)
        if not isinstance(found, LitelogError) and found[1].client.url == "memory://r0":
            whole = WHOLE if damage != "deleted" or not newest else prefix(LOG, 6)
            assert found[0] == whole, key
            told = {repaired.key for repaired in found[2].repaired}
            assert key in told or newest or damage in ("harmless", "another"), key
            assert {repaired.replica for repaired in found[2].repaired} <= {"memory://r1", None}
        elif not isinstance(found, LitelogError):
            assert found[0] == (prefix(LOG, 7) if further else WHOLE), key
            assert [url for url, _ in found[1].skipped] == ["memory://r0"] or (newest and damage == "deleted"), key
            # Only the first replica had the lost bytes, their length is unknown, or nothing identifies them elsewhere.
            assert not further or newest or key == claim_key(1), key
        else:
            assert isinstance(found, CorruptionError)
            assert (further and newest) or not digests, key


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_object_of_the_chosen_one_but_the_last_may_be_lost_at_once(tmp_path: Path, damage: str) -> None:
    one = replica(([0, 1], [0], [0]))
    damaged = one
    for key in wal_keys(one)[:-1]:
        damaged = DAMAGES[damage](damaged, key)
    restored, _, result = outcome([damaged, replica(([1], [], [0]), upto=7)], tmp_path)
    assert restored == WHOLE
    assert result.records == TOTAL
    assert result.replica == "memory://r0"


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["deleted", "header", "data"])
@pytest.mark.parametrize("kept", sampled_cases([1, 2, 3, 4, 5, 7], 3, "bounds in lost objects"))
def test_a_bound_is_kept_though_the_object_that_it_lies_in_is_lost(tmp_path: Path, damage: str, kept: int) -> None:
    commits = [count for counts in SHAPE for count in counts]
    target = Target(sequence=sum(commits[:kept]) - 1)
    for key in wal_keys(ONE):
        found = outcome([DAMAGES[damage](ONE, key), TWO], tmp_path, target=target)
        assert found[0] == prefix(LOG, kept), key


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 5])
def test_a_single_replica_never_ends_short_of_a_bound_in_lost_objects(tmp_path: Path, kept: int) -> None:
    commits = [count for counts in SHAPE for count in counts]
    target = Target(sequence=sum(commits[:kept]) - 1)
    for key in wal_keys(ONE)[:-1]:
        found = outcome([DAMAGES["deleted"](ONE, key)], tmp_path, target=target)
        assert isinstance(found, CorruptionError) or found[0] == prefix(LOG, kept), key


@pytest.mark.slow
def test_a_third_replica_helps_where_the_second_is_damaged_too(tmp_path: Path) -> None:
    one, two, three = ONE, replica(([0, 1], [0], [1]), owners=1, first=2), replica(upto=6)
    keys = wal_keys(one), wal_keys(two)
    found = outcome([DAMAGES["data"](one, keys[0][2]), DAMAGES["data"](two, keys[1][2]), three], tmp_path)
    assert found[0] == WHOLE
    assert {repaired.replica for repaired in found[2].repaired} == {"memory://r2"}


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["deleted", "header", "data", "cut"])
@pytest.mark.parametrize("number", range(5))
def test_bytes_that_all_replicas_lost_are_a_named_error_and_nothing_is_left(
    tmp_path: Path, damage: str, number: int
) -> None:
    one, two = ONE, replica(([0, 1], [0], [1]), first=2)
    error = outcome([DAMAGES[damage](held, wal_keys(held)[number]) for held in (one, two)], tmp_path)
    assert isinstance(error, LitelogError)
    assert error.exit_code == ExitCode.CORRUPTION
    assert str(parse_wal(wal_keys(one)[number])) in str(error) or wal_keys(one)[number] in str(error)


def test_a_replica_that_lost_a_snapshot_and_a_log_segment_is_not_of_another_history(tmp_path: Path) -> None:
    log = make_log([[1], [1], [1]])
    one, two = replica([()] * 3, log=log), replica([()] * 3, log=log, first=4, upto=2)
    damaged = DAMAGES["deleted"](one, snapshot_key(parse_wal(wal_keys(one)[0]).generation, 0))
    restored, choice, _ = outcome([DAMAGES["deleted"](damaged, wal_keys(one)[1]), two], tmp_path)
    assert restored == prefix(log, 2)
    assert [url for url, _ in choice.skipped] == ["memory://r0"]


def test_another_replicas_earlier_generation_helps_where_its_latest_cannot(tmp_path: Path) -> None:
    damaged = DAMAGES["data"](ONE, wal_keys(ONE)[1])
    two = TWO
    for key in wal_keys(two):
        two = DAMAGES["cut"](two, key)
    restored, _, result = outcome([damaged, two], tmp_path)
    assert restored == WHOLE
    (repaired,) = result.repaired
    assert repaired.generation != max(parse_wal(key).generation for key in TWO if parse_wal(key))


def test_a_lost_snapshot_is_reported_and_no_record_is_lost(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    ship(builder.add(), LOG, ([0], [], []))
    key = snapshot_key(builder.generations[0].name, 0)
    objects = DAMAGES["deleted"](builder.objects(), key)
    restored, _, result = outcome([objects, replica(upto=5)], tmp_path)
    assert restored == WHOLE
    assert [repaired.key for repaired in result.repaired] == [key]


@pytest.mark.parametrize("damage", ["cut", "deleted"])
@pytest.mark.parametrize("refers", [False, True])
def test_a_replica_is_skipped_if_its_snapshot_with_the_logs_beginning_is_lost(
    tmp_path: Path, damage: str, refers: bool
) -> None:
    builder = ReplicaBuilder()
    old = builder.add()
    for segment in LOG[:2]:
        old.ship_segment(segment)
    entries = [old.seal(0), old.seal(1)]
    builder.client.delete_snapshots([(old.name, 0)])  # retention took the rest of that generation
    claim = builder.claim(first=2) if refers else builder.claim(Relation.DIVERGED, first=2)
    built = builder.add(claim, start=False)
    built.start(entries)
    built.ship_segment(LOG[2], final=None)
    builder.client.delete_wal_segments(old.positions[:-1])
    objects, key = builder.objects(), snapshot_key(built.name, 2)
    restored, _, _ = outcome([objects], tmp_path)
    assert restored == WHOLE
    objects = DAMAGES[damage](objects, key)
    restored, choice, _ = outcome([objects, replica(upto=5)], tmp_path)
    assert restored == prefix(LOG, 5)
    assert [key in reason for _, reason in choice.skipped] == [True]


@pytest.mark.slow
def test_a_replica_that_lost_the_snapshot_of_the_logs_beginning_is_skipped(tmp_path: Path) -> None:
    builder = ReplicaBuilder()
    old = builder.add()
    old.ship_segment(LOG[0])
    entry = old.seal(0)
    builder.client.delete_snapshots([(old.name, 0)])
    second = builder.add(builder.claim(first=1), start=False)
    second.start([entry])
    second.ship_segment(LOG[1])
    newest = builder.add(builder.claim(first=2), start=False)
    newest.start([second.seal(1)])
    newest.ship_segment(LOG[2], final=None)
    builder.client.delete_wal_segments(old.positions[:-1])
    objects, key = builder.objects(), snapshot_key(second.name, 1)
    restored, _, _ = outcome([objects], tmp_path)
    assert restored == WHOLE
    restored, choice, _ = outcome([DAMAGES["cut"](objects, key), replica(upto=5)], tmp_path)
    assert restored == prefix(LOG, 5)
    assert [key in reason for _, reason in choice.skipped] == [True]


def lines_replica(*firsts: int) -> dict[str, bytes]:
    """A log of three log segments with two lines each, and a snapshot after each, which begins at that index."""
    builder = ReplicaBuilder(LINES)
    built = builder.add()
    for number, first in enumerate(firsts):
        data = b"".join(b"line %d\n" % line for line in (2 * number, 2 * number + 1))
        built.ship(data, f"{number}.log", first=2 * number, next=2 * number + 2, records=2, final=True)
        built.snapshot(number + 1, first)
    return builder.objects()


@pytest.mark.slow
def test_files_that_one_replica_dropped_are_restored_from_one_that_names_them(tmp_path: Path) -> None:
    keeps, mirrors = lines_replica(0, 0, 0), lines_replica(0, 1, 2)
    bound = Target(sequence=3)
    for replicas in ([mirrors, keeps], [keeps, mirrors]):
        restored, choice, _ = outcome(replicas, tmp_path, target=bound)
        assert sorted(restored) == ["0.log", "1.log"]
        assert len(choice.skipped) == 1
    restored, _, _ = outcome([mirrors, mirrors], tmp_path, target=bound)
    assert list(restored) == ["1.log"]


@pytest.mark.parametrize("whole", range(1, 6))
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_replica_that_fails_during_the_restore_is_replaced(tmp_path: Path, whole: int, parallelism: int) -> None:
    down = ObjectReplicaClient(DownStore("s3://down", client(ONE, "inner").store, whole))
    choice, result = restore_from([down, client(TWO, "two")], tmp_path / "out", parallelism=parallelism)
    assert choice.client is down
    assert files_in(tmp_path / "out") == WHOLE
    assert {repaired.replica for repaired in result.repaired} == {"memory://two"}


def text_log(lines: Any) -> Any:
    """(name, bytes, ends of lines) of log segments with the given numbers of lines."""
    log, number = [], 0
    for at, count in enumerate(lines):
        data, ends = b"", []
        for _ in range(count):
            data += b"line %d %s\n" % (number, b"x" * (number % 7))
            number += 1
            ends.append(len(data))
        log.append((f"app-{at}.log", data, ends))
    return log


def text_replica(log_format: Any, log: Any, cuts: Any, first: Any, log_id: Any) -> Any:
    builder = ReplicaBuilder(log_format)
    built = builder.add(replace(builder.claim(first=first), log=log_id))
    for (name, data, ends), cut in zip(log, cuts, strict=True):
        bounds = [0, *sorted({ends[number] for number in cut if number < len(ends) - 1}), len(data)]
        for start, end in pairwise(bounds):
            facts = {"check_start": start, "check_digest": hashlib.sha256(data[start:end]).hexdigest()}
            built.ship(data[start:end], name, final=end == len(data) and name != log[-1][0], **facts)
    return builder.objects()


CUTS = st.sets(st.integers(0, 5))


@pytest.mark.slow
@given(
    data=st.data(), log_format=st.sampled_from([LINES, RAW]), lines=st.lists(st.integers(1, 6), min_size=1, max_size=3)
)
@settings(max_examples=examples(60))
def test_logs_without_sequences_or_ids_are_recognised_by_their_bytes(
    data: st.DataObject, log_format: Any, lines: Any
) -> None:
    log = text_log(lines)
    held = [text_replica(log_format, log, [data.draw(CUTS) for _ in log], first, str(first) * 32) for first in (0, 3)]
    damaged = dict(held[0])
    for key in data.draw(st.sets(st.sampled_from(wal_keys(held[0])))):
        damaged = DAMAGES[data.draw(st.sampled_from(["deleted", "header", "data", "cut"]))](damaged, key)
    with TemporaryDirectory() as folder:
        found = outcome([damaged, held[1]], folder)
        assert not isinstance(found, LitelogError), found
        assert found[0] == {name: content for name, content, _ in log}


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=examples(150))
def test_two_replicas_that_are_cut_and_damaged_give_the_log_or_an_error(data: st.DataObject) -> None:
    """They give the whole log if each commit is intact in either of them and both show their ends. Otherwise they give
    an error, or a true prefix with a message that a replica was skipped."""
    shape = data.draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=3))
    log = make_log(shape)
    commits = sum(map(len, shape))
    held, damaged = [], []
    for first in (0, 4):
        objects = replica(
            [data.draw(CUTS) for _ in log],
            log=log,
            first=first,
            digests=data.draw(st.booleans()),
            final=data.draw(st.sampled_from(["last", "empty"])),
            upto=data.draw(st.integers(1, commits)),
            owners=data.draw(st.integers(1, 2)),
        )
        held.append(objects)
        for key in data.draw(st.sets(st.sampled_from(sorted(objects)), max_size=3)):
            objects = DAMAGES[data.draw(st.sampled_from(sorted(DAMAGES)))](objects, key)
        damaged.append(objects)
    prefixes = [prefix(log, number) for number in range(1, commits + 1)]
    with TemporaryDirectory() as folder:
        found = outcome(damaged, folder, parallelism=data.draw(st.sampled_from([1, 4])))
        if isinstance(found, LitelogError):
            assert damaged != held
            assert found.exit_code in (ExitCode.CORRUPTION, ExitCode.NOTHING_TO_RESTORE)
            return
        restored, choice, result = found
        assert restored in prefixes
        assert result.bytes == sum(map(len, restored.values()))
        if damaged == held:
            assert (result.repaired, choice.skipped) == ((), ())
