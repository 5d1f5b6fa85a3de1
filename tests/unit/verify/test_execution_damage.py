"""The tests flip bits of a small replica, and drop, double, swap and replay each of its objects.

The rule: a verification names a harmful anomaly, or the damage is harmless. **Harmless** means that a reader restores
the same bytes from the damaged replica as from the whole one. No other object shows that the newest object of an open
generation is gone. The owner's state shows it, and a test checks that, too.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import pytest

from litelog.objects import wal_segment
from litelog.objects.layout import parse_claim, parse_sealed, parse_wal
from litelog.verify.findings import Acknowledged, AnomalyKind
from tests.builders.bit_flips import REPLICAS, flips_of, judge_flips, restored
from tests.builders.replica_builder import ReplicaBuilder
from tests.builders.verify_helper import LOG, everything, found, verified
from tests.sampling import NIGHTLY, sampled, sampled_cases

ONE_IN = 12
"""By day, a test makes one in this many of its damages."""


def is_loud_or_harmless(objects: dict[str, bytes], whole: dict[str, bytes]) -> bool:
    report = verified(objects, parallelism=1)
    return report.harmful > 0 or restored(objects) == restored(whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", REPLICAS)
def test_a_flipped_bit_in_any_byte_is_named_or_harmless(name: Any) -> None:
    """One bit of each byte, a sample of them; every bit of it in ``tests/faults``."""
    bits = [(key, at, bit) for key, at, bit in flips_of(name) if bit == at % 8]
    loud, harmless = judge_flips(name, sampled(bits, ONE_IN, f"a bit of each byte of {name}"))
    assert loud > 20 * harmless
    assert harmless > 0 or not NIGHTLY


@pytest.mark.slow
@pytest.mark.parametrize("name", REPLICAS)
def test_every_truncation_is_named(name: Any) -> None:
    whole = REPLICAS[name]().objects()
    sizes = [(key, size) for key, body in whole.items() for size in range(len(body))]
    for key, size in sampled(sizes, ONE_IN, f"truncations of {name}"):
        report = verified({**whole, key: whole[key][:size]}, parallelism=1)
        kinds = {anomaly.kind for anomaly in report.anomalies if anomaly.harmful and anomaly.key == key}
        assert kinds, (key, size)
        if parse_wal(key) or parse_sealed(key):
            assert kinds == {AnomalyKind.LENGTH}, (key, size)


@pytest.mark.slow
@pytest.mark.parametrize("name", REPLICAS)
def test_bytes_after_the_end_are_named(name: str) -> None:
    whole = REPLICAS[name]().objects()
    for key, body in whole.items():
        for extra in (b"\0", b" ", body[-1:], body):
            report = verified({**whole, key: body + extra}, parallelism=1)
            if not report.harmful:
                assert parse_claim(key) is not None, key  # JSON with a space after it is the same claim
                assert extra == b" "


EVERYTHING = everything().objects()
KEYS = sorted(EVERYTHING)


@pytest.mark.parametrize("key", KEYS)
def test_every_dropped_object_is_missed_or_was_not_needed(key: str) -> None:
    left = {other: body for other, body in EVERYTHING.items() if other != key}
    report = verified(left)
    if not report.harmful:
        assert key in NOT_NEEDED, key
        assert all_points(left) >= all_points(EVERYTHING) - ({NEWEST} if key == NEWEST_KEY else set())
    else:
        assert key not in NOT_NEEDED
        assert {kind for kind, _ in found(report)} <= {"missing", "gap"}


G1, G2, G3 = "generations/00000001000000a1", "generations/00000002000000a2", "generations/00000003000000a3"
NEWEST_KEY = f"{G3}/wal/0000000000000003/0000000000000080.wal.lz4"
"""The newest object of all: only its owner's state shows that it is missing."""
NOT_NEEDED = {
    # Snapshots that are followed by a newer one, and the newest of a generation whose WAL segments are all there.
    f"{G1}/snapshots/0000000000000000.snapshot.lz4",
    f"{G1}/snapshots/0000000000000001.snapshot.lz4",
    f"{G2}/snapshots/0000000000000000.snapshot.lz4",
    f"{G2}/snapshots/0000000000000003.snapshot.lz4",
    # WAL segments that the newest snapshot covers.
    f"{G2}/wal/0000000000000000/0000000000000000.wal.lz4",
    f"{G2}/wal/0000000000000000/00000000000000b8.wal.lz4",
    f"{G2}/wal/0000000000000001/0000000000000000.wal.lz4",
    f"{G2}/wal/0000000000000002/0000000000000000.wal.lz4",
    NEWEST_KEY,
}
NEWEST = (G3, LOG[3].name)


def all_points(objects: dict[str, bytes]) -> set[tuple[str, str]]:
    """Every (generation, file) that a reader gives whole, from the newest snapshot of each generation on."""
    points = set()
    for name in (G1, G2, G3):
        epoch = name[12:20]
        mine = {
            key: body
            for key, body in objects.items()
            if not key.startswith("generations/") or key.startswith(name) or parse_sealed(key) is not None
        }
        mine = {key: body for key, body in mine.items() if parse_claim(key) is None or key[7:15] <= epoch}
        files = restored(mine)
        assert files is not None, name
        points |= {(name, file) for file, data in files.items() if data == {s.name: s.data for s in LOG}.get(file)}
    return points


@pytest.mark.slow
def test_the_owner_knows_its_newest_object() -> None:
    builder = everything()
    last = builder.generations[-1].positions[-1]
    key = f"{G3}/wal/{last.index:016x}/{last.offset:016x}.wal.lz4"
    objects = builder.objects()
    known = Acknowledged(last, wal_segment.digest([objects[key]]))
    assert found(verified(objects, acknowledged=known)) == []
    assert found(verified({**objects, key: objects[key] + b"x"}, acknowledged=known))[-1] == ("checksum", key)
    del objects[key]
    assert found(verified(objects)) == []
    assert found(verified(objects, acknowledged=known)) == [("missing", key)]


@pytest.mark.slow
def test_every_swap_of_two_objects_is_named() -> None:
    for one, two in sampled(list(combinations(KEYS, 2)), ONE_IN, "swaps"):
        if EVERYTHING[one] != EVERYTHING[two]:
            report = verified({**EVERYTHING, one: EVERYTHING[two], two: EVERYTHING[one]}, parallelism=1)
            assert {one, two} <= {key for _, key in found(report)}, (one, two)


@pytest.mark.slow
def test_every_object_in_the_place_of_another_is_named() -> None:
    for one, two in sampled(list(permutations(KEYS, 2)), ONE_IN, "places"):
        if EVERYTHING[one] != EVERYTHING[two]:
            report = verified({**EVERYTHING, two: EVERYTHING[one]}, parallelism=1)
            assert two in {key for _, key in found(report)}, (one, two)


@pytest.mark.slow
@pytest.mark.parametrize("key", sampled_cases(KEYS, 3, "objects with a second copy"))
def test_a_second_copy_of_an_object_under_a_free_name_is_named(key: str) -> None:
    for free in free_names():
        report = verified({**EVERYTHING, free: EVERYTHING[key]}, parallelism=1)
        assert free in {name for _, name in found(report)}, free
    assert found(verified({**EVERYTHING, key + ".copy": EVERYTHING[key]})) == []
    assert found(verified({**EVERYTHING, key + ".copy": EVERYTHING[key]}), harmful=False) == [
        ("foreign", key + ".copy")
    ]


def free_names() -> list[str]:
    return [
        "epochs/00000004.json",
        f"{G3}/segments/0000000000000005.segment.lz4",
        f"{G3}/snapshots/0000000000000004.snapshot.lz4",
        f"{G3}/wal/0000000000000003/0000000000000081.wal.lz4",
        f"{G3}/wal/0000000000000004/0000000000000000.wal.lz4",
        f"{G2}/wal/0000000000000003/0000000000000001.wal.lz4",
        f"{G1}/wal/0000000000000004/0000000000000000.wal.lz4",
    ]


@pytest.mark.slow
def test_every_replay_of_a_deleted_object_is_named_or_harmless() -> None:
    """An object that retention removed comes back. No reader reads it, as it lies below the newest snapshot."""
    builder = everything()
    before = {**builder.objects()}
    unpruned = ReplicaBuilder()
    first = unpruned.add()
    for segment in LOG[:2]:
        first.ship_segment(segment, cuts=[0])
    replayed = 0
    for key, body in unpruned.objects().items():
        if key not in before:
            assert is_loud_or_harmless({**before, key: body}, before), key
            assert all_points({**before, key: body}) == all_points(before)
            replayed += 1
    assert replayed


@pytest.mark.slow
def test_every_replay_of_another_owners_history_is_named() -> None:
    """Another owner ships the same log under the same names: none of its objects passes for this owner's."""
    other = ReplicaBuilder()
    claim = other.claim()
    built = other.add(replace(claim, owner="another"))
    for segment in LOG[:2]:
        built.ship_segment(segment, cuts=[0])
    mine = ReplicaBuilder()
    built = mine.add()
    for segment in LOG[:2]:
        built.ship_segment(segment, cuts=[0])
    objects = mine.objects()
    for key, body in other.objects().items():
        assert body != objects[key]
        assert found(verified({**objects, key: body})), key
