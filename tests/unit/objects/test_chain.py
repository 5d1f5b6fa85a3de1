"""The rules of a chain: a header that breaks each one, the reader's error for it, and the kind in ``verify``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from litelog.errors import CorruptObjectError, ReplicaGapError
from litelog.formats.litelog import LitelogFormat
from litelog.formats.raw import RawFormat
from litelog.objects.chain import (
    ChainState,
    Identity,
    Rule,
    Violation,
    next_state,
    place_violation,
    sealed_violations,
    violations,
)
from litelog.objects.position import Position, generation
from litelog.objects.snapshot_entries import SnapshotEntry
from litelog.objects.wal_segment import WalHeader, WalSegment
from litelog.verify.wal_checks import KINDS

NAME = generation("00000001000000a1")
FILE, NEXT_FILE = "00000000000000000000.log", "00000000000000000005.log"
HEADER = WalHeader(
    log="1" * 32,
    format="litelog",
    generation=NAME,
    owner="2" * 32,
    index=1,
    offset=0,
    length=0,
    file=NEXT_FILE,
    first=5,
    next=7,
    records=2,
    lowest=None,
    highest=None,
    crc=0,
    crc_total=0,
    previous="a" * 64,
    shipped=10,
    final=True,
)
STATE = ChainState(
    Identity.of(HEADER), 0, Position(NAME, 1, 0), "a" * 64, shipped=10, next=5, crc_total=0, file_before=FILE
)
TERMINAL = replace(HEADER, successor="epochs/00000002.json", final=False, records=0, first=None, file="")
OPEN_STATE = replace(STATE, slot=Position(NAME, 1, 8), file=NEXT_FILE, crc_total=3)

BREAKS: list[tuple[Rule, ChainState, WalHeader]] = [
    (Rule.IDENTITY, STATE, replace(HEADER, log="3" * 32)),
    (Rule.IDENTITY, STATE, replace(HEADER, format="raw")),
    (Rule.OWNER, STATE, replace(HEADER, owner="3" * 32)),
    (Rule.DIGEST, STATE, replace(HEADER, previous="b" * 64)),
    (Rule.DIGEST, STATE, replace(HEADER, previous="")),
    (Rule.CHECKSUM, STATE, replace(HEADER, crc_total=1)),
    (Rule.CHECKSUM, OPEN_STATE, replace(HEADER, offset=8)),
    (Rule.TIME, STATE, replace(HEADER, shipped=9)),
    (Rule.TERMINAL, STATE, replace(TERMINAL, final=True)),
    (Rule.TERMINAL, OPEN_STATE, replace(TERMINAL, offset=8, crc_total=3, file="other")),
    (Rule.FILE, OPEN_STATE, replace(HEADER, offset=8, crc_total=3, file=FILE)),
    (Rule.FILE_NAME, STATE, replace(HEADER, file="x")),
    (Rule.FILE_NAME, STATE, replace(HEADER, file="../" + NEXT_FILE)),
    (Rule.FILE_ORDER, STATE, replace(HEADER, file=FILE)),
    (Rule.SEQUENCE, STATE, replace(HEADER, first=4)),
    (Rule.SEQUENCE, STATE, replace(HEADER, sealed="c" * 64, first=None, records=0, next=4)),
    (Rule.UNNUMBERED, STATE, replace(HEADER, first=None)),
    (Rule.UNNUMBERED, STATE, replace(HEADER, first=None, records=0)),
]
PLACES = [
    (Rule.ENDED, replace(STATE, ended=True), HEADER.position),
    (Rule.BEFORE_FIRST, replace(STATE, first=1), Position(NAME, 0, 0)),
    (Rule.OVERLAP, STATE, Position(NAME, 0, 8)),
    (Rule.GAP, STATE, Position(NAME, 1, 8)),
]


def segment(header: WalHeader) -> WalSegment:
    return WalSegment(header, "d" * 64, memoryview(b""))


def found(state: ChainState, header: WalHeader, log_format: Any = None) -> list[Rule]:
    return [violation.rule for violation in violations(state, header, log_format or LitelogFormat())]


@pytest.mark.parametrize("header", [HEADER, TERMINAL, replace(HEADER, first=7, next=9)])
def test_an_object_that_continues_the_chain_breaks_no_rule(header: WalHeader) -> None:
    assert found(STATE, header) == []
    after = next_state(STATE, segment(header), LitelogFormat())
    assert after == STATE.after(header, "d" * 64)
    assert after.ended == (header.successor is not None)


@pytest.mark.parametrize(("rule", "state", "header"), BREAKS)
def test_each_rule_is_broken_alone_and_a_reader_raises_it(rule: Rule, state: ChainState, header: WalHeader) -> None:
    assert found(state, header) == [rule]
    if header.sealed is None:
        with pytest.raises(CorruptObjectError) as caught:
            next_state(state, segment(header), LitelogFormat())
        (violation,) = violations(state, header, LitelogFormat())
        assert str(caught.value) == f"{segment(header).key}: {violation}"


def test_all_broken_rules_are_found_and_a_reader_raises_the_first() -> None:
    header = replace(HEADER, log="3" * 32, previous="b" * 64, crc_total=1, shipped=9, first=4)
    assert found(STATE, header) == [Rule.IDENTITY, Rule.DIGEST, Rule.CHECKSUM, Rule.TIME, Rule.SEQUENCE]
    with pytest.raises(CorruptObjectError, match=": log is"):
        next_state(STATE, segment(header), LitelogFormat())


@pytest.mark.parametrize(("rule", "state", "position"), PLACES)
def test_each_place_but_the_next_slot_breaks_a_rule(rule: Rule, state: ChainState, position: Position) -> None:
    violation = place_violation(state, position)
    assert violation is not None
    assert violation.rule is rule
    header = replace(HEADER, index=position.index, offset=position.offset)
    with pytest.raises(ReplicaGapError if rule is Rule.GAP else CorruptObjectError):
        next_state(state, segment(header), LitelogFormat())


@pytest.mark.parametrize("header", [header for _, state, header in BREAKS if state is STATE])
def test_nothing_is_checked_against_facts_that_a_loss_made_unknown(header: WalHeader) -> None:
    lost = replace(STATE, identity=None).after_loss(STATE.slot)
    kept = {Rule.TIME, Rule.TERMINAL, Rule.FILE_NAME, Rule.FILE_ORDER, Rule.SEQUENCE}
    if not header.offset:  # the bytes before it are none
        kept.add(Rule.CHECKSUM)
    assert set(found(lost, header)) <= kept | ({Rule.UNNUMBERED} if header.records else set())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"file": FILE}, "file"),
        ({"generation": "00000001000000a2"}, "generation"),
        ({"sealed_index": 2}, "index"),
        ({"digest": "e" * 64}, "SHA-256"),
        ({"crc": 1}, "CRC-32C"),
        ({"next": 8}, "next sequence"),
    ],
)
def test_fields_of_a_final_that_its_sealed_segment_contradicts_are_named(change: dict[str, Any], what: str) -> None:
    header = replace(HEADER, sealed="c" * 64, first=None, records=0)
    entry = SnapshotEntry(
        **dict.fromkeys(SnapshotEntry.__slots__, 0)
        | {"generation": NAME, "sealed_index": 1, "file": NEXT_FILE, "digest": "c" * 64, "length": 0, "next": 7}
    )
    assert list(sealed_violations(STATE, header, entry)) == []
    (violation,) = sealed_violations(STATE, header, replace(entry, **change))
    assert (violation.rule, violation.what) == (Rule.SEALED, what)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0", "x" * 256, "é" * 128])
def test_a_name_that_cannot_be_a_plain_file_is_refused_in_every_format(name: str) -> None:
    header = replace(HEADER, format="raw", file=name)
    state = replace(STATE, identity=Identity.of(header), file_before="")
    assert found(state, header, RawFormat()) == [Rule.FILE_NAME]


@pytest.mark.slow
def test_verify_has_a_kind_for_every_rule() -> None:
    assert set(KINDS) == set(Rule)
    assert str(Violation(Rule.FILE, "file", "a", "b")) == "file is b, expected a"
