"""The many entries of a snapshot that was read are columns, and behave as a tuple of the entries does."""

from __future__ import annotations

import pickle
import struct
from base64 import b64decode
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from litelog.objects import snapshot as snapshots
from litelog.objects.packed_entries import read_arrays
from litelog.objects.position import Generation
from litelog.objects.snapshot import Snapshot, drop_before, extend
from litelog.objects.snapshot_entries import MANY, EntryColumns, SnapshotEntry, read_entries, write_entries

NAME = Generation("0000000100000000")
BEGUN = Snapshot("0" * 32, "litelog", NAME, "owner", 0, 0, 0)


def entries(count: int) -> tuple[SnapshotEntry, ...]:
    """Entries of all kinds: without records, without timestamps, and with times before 1970."""
    random, made, sequence = Random(count), [], 0
    for number in range(count):
        records = random.choice([0, 1, 500])
        stamp = random.choice([None, random.randrange(-(1 << 50), 1 << 50)]) if records else None
        facts = (f"{sequence:020d}.log", 900, 4000, random.randbytes(32).hex(), random.getrandbits(32))
        sequences = (sequence, sequence + records, records) if records else (None, sequence or None, 0)
        times = (stamp, stamp, number, number + 3)
        made.append(SnapshotEntry(number, NAME, number + 7, *facts, *sequences, *times, exact=number % 3 > 0))
        sequence += records
    return tuple(made)


def read(given: tuple[SnapshotEntry, ...]) -> Snapshot:
    held = extend(BEGUN, given, created=0, chain=None)
    return snapshots.decode(held.key, snapshots.encode(held))


@pytest.mark.slow
def test_many_entries_are_columns_with_the_same_entries() -> None:
    wanted = entries(MANY + 10)
    found = read(wanted).segments
    assert isinstance(found, EntryColumns)
    assert found == wanted
    assert [*found] == [*wanted]
    assert found[3:2000] == wanted[3:2000]
    assert found[70:9:-7] == wanted[70:9:-7]
    assert found[-1] == wanted[-1]
    assert next(reversed(found)) == wanted[-1]
    assert found != wanted[1:]
    assert hash(found) == hash(wanted)
    assert pickle.loads(pickle.dumps(found)) == wanted
    with pytest.raises(IndexError):
        found[MANY + 10]


@pytest.mark.slow
def test_a_snapshot_of_columns_is_extended_cut_and_written_as_another() -> None:
    wanted = entries(MANY + 10)
    found, held = read(wanted), extend(BEGUN, wanted, created=0, chain=None)
    assert found == held
    assert snapshots.encode(found) == snapshots.encode(held)
    assert drop_before(found, 99) == drop_before(held, 99)
    more = replace(wanted[-1], index=MANY + 10, first=1 << 40, next=(1 << 40) + 1, records=1)
    assert extend(found, [more], created=1, chain=None) == extend(held, [more], created=1, chain=None)
    assert found.entry(17) == wanted[17]


@pytest.mark.slow
def test_sequences_that_go_back_are_refused_in_columns_too() -> None:
    wanted = [*entries(MANY)]
    later = next(number for number in range(2000, MANY) if wanted[number].records)
    wanted[later] = replace(wanted[later], first=1, next=1 + wanted[later].records)
    found = read_entries(0, MANY, write_entries(wanted))
    assert isinstance(found, EntryColumns)
    for segments in (tuple(wanted), found):
        with pytest.raises(ValueError, match="its first sequence is 1, and"):
            snapshots.encode(replace(BEGUN, next=MANY, segments=segments))


@pytest.mark.slow
def test_numbers_that_do_not_fit_into_columns_are_kept_in_entries() -> None:
    wanted = entries(MANY)
    for number in (1 << 63, (1 << 64) - 2):
        large = (replace(wanted[0], sealed_index=number), *wanted[1:])
        assert read(large).segments == large
        assert type(read(large).segments) is tuple


def plain_entries(count: int) -> tuple[SnapshotEntry, ...]:
    """Entries that all have records and timestamps."""
    random = Random(count)
    made = [one for one in entries(3 * count) if one.records][:count]
    stamps = (random.randrange(1 << 30) for _ in made)
    return tuple(
        replace(one, index=number, sealed_index=number, lowest=stamp, highest=stamp + number)
        for number, (one, stamp) in enumerate(zip(made, stamps, strict=True))
    )


def outcome(count: int, written: object) -> object:
    """The entries, or what the error says."""
    try:
        return tuple(read_entries(0, count, written))
    except ValueError as error:
        return str(error)


def test_arrays_of_numbers_are_read_and_refused_as_single_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 70
    monkeypatch.setattr("litelog.objects.snapshot_entries.MANY", count)
    wanted = plain_entries(count)
    written: dict[str, Any] = write_entries(wanted)
    names = [name for name in written if name not in {"generation", "file", "digest", "crc", "coarse"}]
    assert all(type(written[name][1]) is str for name in names)
    assert read_arrays(written, count, {}, 255) is not None
    assert outcome(count, written) == wanted
    harmed: list[dict[str, Any]] = []
    for name in names:
        first, packed = written[name]
        steps = [first, *struct.unpack(f"<{count - 1}i", b64decode(packed))]
        harmed += ({**written, name: [other, packed]} for other in (-5, -(1 << 40), 1 << 62, 1 << 65, True, 1.5))
        harmed += ({**written, name: [first, other]} for other in (packed[:-8], packed[:-3], packed[:-1] + "!"))
        harmed += ({**written, name: [*steps[:9], other, *steps[10:]]} for other in (0, -7, 1 << 50, 1 << 63, None))
    found = [outcome(count, one) for one in harmed]
    monkeypatch.setattr("litelog.objects.packed_entries.read_arrays", lambda *_: None)
    assert found == [outcome(count, one) for one in harmed]
    assert {type(one) for one in found} == {str, tuple}
