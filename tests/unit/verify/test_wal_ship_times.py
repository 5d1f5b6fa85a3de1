"""Marks in sealed footers, compared with the times of the WAL segments of the same bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.objects.sealed_segment import encode_footer
from litelog.objects.snapshot_entries import make_entry
from litelog.restore.history_plan import Target, find_plan
from litelog.verify.findings import Scope
from tests.builders.replica_builder import FORMAT, SECOND, ReplicaBuilder, make_log
from tests.builders.sealed_builder import make_sealed
from tests.builders.verify_helper import found, verified

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = make_log([[1, 2, 1], [2, 1]])
Shape = list[tuple[int, int]]


def replica_with(change: Callable[[Shape], Shape], *, exact: bool = True) -> tuple[ReplicaBuilder, str]:
    """A replica that has its first log segment both in three WAL segments and sealed with changed marks; and the key of
    the sealed segment."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0], cuts=[0, 1])
    held = built.shipped[0]
    marks = change(held.marks)
    footer, body = make_sealed(
        built.claim, 0, held.name, held.data, FORMAT, marks=marks, previous=held.previous, expect=held.expect
    )
    footer = replace(footer, marks=replace(footer.marks, exact=exact))
    body = body[: footer.data_bytes] + encode_footer(footer)
    builder.client.write_sealed_segment(built.name, 0, [body])
    built.entries[0] = make_entry(footer, len(body))
    built.snapshot(1)
    built.ship_segment(LOG[1], final=None)
    return builder, built.entries[0].key


def unchanged(marks: Shape) -> Shape:
    return marks


def one_earlier(marks: Shape) -> Shape:
    return [marks[0], (marks[1][0], marks[1][1] - 1), marks[2]]


def one_later(marks: Shape) -> Shape:
    return [marks[0], (marks[1][0], marks[1][1] + 1), marks[2]]


def all_later(marks: Shape) -> Shape:
    return [(end, time + SECOND) for end, time in marks]


def last_alone(marks: Shape) -> Shape:
    return marks[-1:]


def first_left_out(marks: Shape) -> Shape:
    return marks[1:]


def first_further(marks: Shape) -> Shape:
    return [(marks[1][0] - 1, marks[0][1]), *marks[1:]]


def first_for_all(marks: Shape) -> Shape:
    return [(marks[2][0], marks[0][1])]


@pytest.mark.parametrize(("change", "exact"), [(unchanged, True), (last_alone, False), (one_later, False)])
def test_marks_that_fit_are_well(change: Callable[[Shape], Shape], exact: bool) -> None:
    builder, _ = replica_with(change, exact=exact)
    assert found(verified(builder.store), harmful=False) == []


@pytest.mark.parametrize(
    ("change", "exact"),
    [
        (one_earlier, True),
        (one_later, True),
        (all_later, True),
        (last_alone, True),
        (first_left_out, True),
        (first_further, True),
        (first_for_all, True),
        (one_earlier, False),
        (first_further, False),
        (first_for_all, False),
    ],
)
def test_marks_of_other_times_conflict_with_the_wal(change: Callable[[Shape], Shape], exact: bool) -> None:
    builder, key = replica_with(change, exact=exact)
    assert set(found(verified(builder.store))) == {("conflict", key)}


def test_a_mark_names_its_bytes_both_times_and_the_wal_segment() -> None:
    builder, key = replica_with(one_earlier)
    (anomaly,) = verified(builder.store).anomalies
    position = builder.generations[0].positions[1]
    shipped = builder.generations[0].shipped[0].marks[1]
    assert anomaly.key == key
    assert f"to {shipped[0]} as shipped at {shipped[1] - 1}" in anomaly.what
    assert f"/wal/{position.index:016x}/{position.offset:016x}.wal.lz4" in anomaly.what


def test_times_are_compared_though_contents_are_not_read() -> None:
    builder, key = replica_with(one_earlier)
    assert found(verified(builder.store, scope=Scope(0.0, 1))) == [("conflict", key)]


@pytest.mark.slow
def test_marks_without_wal_segments_are_taken_at_their_word() -> None:
    builder, _ = replica_with(one_earlier)
    builder.generations[0].prune(1)
    assert found(verified(builder.store)) == []
    assert find_plan(builder.client, Target(), FORMAT).size == sum(len(segment.data) for segment in LOG)
