"""Checkpoints in a replica: what continues what, and what a decoder refuses of a numbered one."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptObjectError
from litelog.objects.checkpoint import Checkpoint, CheckpointSegment, encode, fold
from litelog.objects.checkpoint_chain import as_stored, decode_stored, find_fault, join, link, newest_first
from litelog.objects.position import Position
from tests.builders.checkpoints import VECTOR

if TYPE_CHECKING:
    from litelog.objects.checkpoint_chain import StoredCheckpoint

FIRST = replace(VECTOR, number=1)


def segment(name: str, length: int = 5) -> CheckpointSegment:
    return CheckpointSegment(name, length, hashlib.sha256(f"{name} {length}".encode()).hexdigest())


def stored(checkpoint: Checkpoint) -> StoredCheckpoint:
    return as_stored("c", encode(checkpoint))


def following(before: StoredCheckpoint, *segments: CheckpointSegment, **changes: object) -> Checkpoint:
    older = before.checkpoint
    made = replace(
        older,
        number=before.number + 1,
        previous=before.digest,
        earlier=older.earlier + len(older.segments) - 1,
        history=fold(older.history, older.segments[:-1]),
        segments=segments or older.segments[-1:],
        time=older.time + 1,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def chain(length: int) -> list[StoredCheckpoint]:
    made = [stored(replace(FIRST, segments=(segment("a"),)))]
    for number in range(1, length):
        last = made[-1].checkpoint.segments[-1]
        made.append(stored(following(made[-1], last, segment(f"{number:03}"))))
    return made


def test_a_chain_is_one_history() -> None:
    made = chain(5)
    linked = link(reversed(made), newest_first(made)[0])
    assert (list(linked.chain), linked.fault) == (made, None)
    assert [each.file for each in join(linked.chain).segments] == ["a", "001", "002", "003", "004"]
    again = stored(following(made[-1], segment("z"), earlier=0, history=None, reason="was rewound"))
    assert [each.file for each in join([*made, again]).segments] == ["z"]


def test_a_missing_one_breaks_the_chain() -> None:
    made = chain(4)
    linked = link(made[:1] + made[2:], made[-1])
    assert linked.chain == made[2:]
    assert made[1].digest in (linked.fault or "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"previous": "ab" * 32}, "does not name"),
        ({"number": 1}, "has number 1"),
        ({"number": 9}, None),
        ({"log": "f" * 32}, "another log"),
        ({"time": VECTOR.time - 1}, "is older"),
        ({"earlier": 2}, "another history"),
        ({"history": "ab" * 32}, "another history"),
        ({"segments": (segment("b"),)}, "another history"),
        ({"segments": (replace(VECTOR.segments[-1], length=2),)}, "another history"),
        ({"segments": (replace(VECTOR.segments[-1], digest="ab" * 32),)}, "another history"),
        ({"segments": (replace(VECTOR.segments[-1], digest="ab" * 32, length=4),)}, None),
        ({"segments": (segment("b"),), "reason": "was rewound", "earlier": 0, "history": None}, None),
    ],
)
def test_what_does_not_continue_a_checkpoint_is_named(changes: dict[str, object], words: str | None) -> None:
    before = stored(FIRST)
    found = find_fault(before, following(before, **changes))
    assert (found is None, words is None or words in (found or "")) == (words is None, True), found


@pytest.mark.parametrize(
    "changes",
    [
        {"number": None, "earlier": 1},
        {"number": None, "history": "ab" * 32},
        {"number": None, "reason": "was rewound"},
        {"number": 0},
        {"number": 1 << 63},
        {"segments": ()},
        {"earlier": 1},
        {"earlier": 1, "history": "ab" * 32},
        {"history": "ab" * 32},
        {"reason": "was rewound"},
    ],
)
def test_a_decoder_refuses_fields_that_contradict_each_other(changes: dict[str, object]) -> None:
    with pytest.raises(CorruptObjectError):
        as_stored("c", encode(replace(FIRST, **changes)))  # type: ignore[arg-type]


def test_a_key_must_be_that_of_the_checkpoint() -> None:
    body = encode(FIRST)
    name = FIRST.position.generation
    assert decode_stored(f"checkpoints/{name}/{1:016x}.json", body).number == 1
    other = replace(FIRST, position=Position.parse("00000002" + str(FIRST.position)[8:]))
    for key, held in (
        (f"checkpoints/{name}/{2:016x}.json", body),
        (f"checkpoints/{name}/{1:016x}.json", encode(other)),
    ):
        with pytest.raises(CorruptObjectError):
            decode_stored(key, held)
