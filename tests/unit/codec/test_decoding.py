"""JSON is measured before it is parsed, and each field has one type and one range."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from litelog.codec import decoding
from litelog.codec.checksum import crc32c
from litelog.codec.decoding import JsonLimits, is_valid_text, naming, parse_json
from litelog.codec.lz4_frames import MAX_FRAME_BYTES, compress_frame, skippable_frame
from litelog.errors import CorruptObjectError, ExitCode, NotEnoughMemoryError
from litelog.objects import claim as claims
from litelog.objects import sealed_segment, wal_segment
from litelog.objects import snapshot as snapshots
from litelog.objects.claim import MAX_TRANSACTIONS, Claim, Relation
from litelog.objects.layout import claim_key, sealed_key, snapshot_key, wal_key
from litelog.objects.position import Position, generation
from tests.builders.child import runs_in_child
from tests.builders.json_objects import footer_of, frames_of

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS = JsonLimits(size=1000, values=10, texts=5, containers=4, depth=2)
NAME = generation("00000001000000a1")
CLAIM = claim_key(1)
SNAPSHOT = snapshot_key(NAME, 0)
SEALED = sealed_key(NAME, 0)
WAL = wal_key(Position(NAME, 0, 0))

BOMBS = {
    "lists": lambda: b"[" + b"[]," * 200_000 + b"[]]",
    "numbers": lambda: b"[" + b"9," * 13_000_000 + b"9]",
    "texts": lambda: b"[" + b'"",' * 1_200_000 + b"9]",
    "depth": lambda: b"[" * 200_000,
}
"""Documents that each hold a little more than any kind of object may."""


def decode_footer(document: bytes, *, framed: bool = False) -> object:
    body = footer_of(document if framed else frames_of(document))
    return sealed_segment.decode_footer(SEALED, body, len(body))


def decode_header(document: bytes) -> object:
    return wal_segment.decode_header(WAL, skippable_frame(document))


DECODERS: dict[str, tuple[str, Callable[[bytes], object]]] = {
    "claim": (CLAIM, lambda document: claims.decode(CLAIM, document)),
    "snapshot": (SNAPSHOT, lambda document: snapshots.decode(SNAPSHOT, frames_of(document))),
    "footer": (SEALED, decode_footer),
    "header": (WAL, decode_header),
}


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("bomb", ["lists", "numbers", "texts", "depth"])
@runs_in_child
def test_json_that_would_fill_the_memory_is_refused_before_it_is_parsed(
    kind: str, bomb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(decoding, "_parse", parsed.append)
    key, decode = DECODERS[kind]
    with pytest.raises(
        CorruptObjectError, match=r"holds \d+ .*, more than \d+|header is too long|is nested more"
    ) as caught:
        decode(BOMBS[bomb]())
    assert caught.value.key == key
    assert parsed == []


def test_a_document_that_holds_more_than_its_kind_may_is_not_decompressed() -> None:
    frame = compress_frame(b" " * MAX_FRAME_BYTES)
    for limit, key, decode in (
        (snapshots.MAX_SNAPSHOT_BYTES, SNAPSHOT, lambda body: snapshots.decode(SNAPSHOT, body)),
        (sealed_segment.MAX_DOCUMENT_BYTES, SEALED, lambda body: decode_footer(body, framed=True)),
    ):
        body = frame * (limit // MAX_FRAME_BYTES + 1)
        with pytest.raises(CorruptObjectError, match=f"more than {limit} bytes of content") as caught:
            decode(body[:-4] + b"else")  # a wrong checksum, which is not checked any more
        assert (caught.value.key, caught.value.exit_code) == (key, ExitCode.CORRUPTION)


@pytest.mark.process
def test_objects_that_expand_are_refused_in_little_memory() -> None:
    """The process takes almost no memory in addition to the text itself."""
    program = f"""
import resource
from tests.builders.json_objects import footer_of, frames_of
from litelog.objects import sealed_segment, snapshot
from litelog.errors import CorruptObjectError
body = frames_of(b"[" + b"[]," * 10_000_000 + b"[]]")
footer = footer_of(body)
before = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (before + (300 << 20),) * 2)
for key, decode in (("{SNAPSHOT}", lambda key: snapshot.decode(key, body)),
                    ("{SEALED}", lambda key: sealed_segment.decode_footer(key, footer, len(footer)))):
    try:
        decode(key)
    except CorruptObjectError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [SNAPSHOT, SEALED]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b" " * 1001, "holds 1001 bytes, more than 1000"),
        (b"[1,2,3,4,5,6,7,8,9,10,11,12]", "holds 11 values, more than 10"),
        (b'["a","b","c","d","e","f"]', "holds 6 texts, more than 5"),
        (b"[[],[],[],[]]", "holds 5 lists and objects, more than 4"),
        (b"[[[]]]", "is nested more than 2 deep"),
        (b"[[{}]", "is not JSON"),
        (b"[NaN]", "holds NaN, which is not a number"),
        (b"[-Infinity]", "holds -Infinity, which is not a number"),
        (b'["\xff"]', "utf-8"),
        ('["a"]'.encode("utf-16"), "utf-8"),
    ],
)
def test_a_json_text_is_measured_and_then_parsed(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text, LIMITS)


def test_signs_inside_texts_do_not_count() -> None:
    for name in ("[{" * 100, "," * 100, '"' * 50, "\\" * 51, '\\"' * 30, "]}", "é\n\x00"):
        assert parse_json(json.dumps([name, [7]]).encode(), LIMITS) == [name, [7]]


def test_a_failure_says_in_which_object_it_was() -> None:
    with pytest.raises(CorruptObjectError, match=f"{WAL}: header: "), naming(WAL, "header"):
        raise KeyError("x")
    with pytest.raises(NotEnoughMemoryError, match=f"{WAL}: not enough memory to read it") as caught, naming(WAL, "x"):
        raise MemoryError
    assert caught.value.exit_code is ExitCode.FAILURE


def test_a_name_is_unicode_or_the_bytes_of_a_file_name() -> None:
    for good in ("", "a", "é", "\U0001f600", "\udcff.log", "a\udc80b"):
        assert is_valid_text(good)
    for bad in ("\ud800", "\udc7f", "\udfff", "a\udcc3\udca9"):  # the last one is another spelling of é
        assert not is_valid_text(bad)


FIRST = Claim(
    log="0" * 32,
    format="litelog",
    owner="o" * 32,
    host="host",
    generation=NAME,
    first=3,
    relation=Relation.FIRST,
    time=5,
)
SECOND = "00000002000000a2"
CONTINUES: dict[str, object] = {
    "generation": SECOND,
    "relation": "continues",
    "predecessor": NAME,
    "predecessor_end": str(Position(NAME, 1, 5)),
    "shift": 1,
}
DIVERGED: dict[str, object] = {
    "generation": SECOND,
    "relation": "diverged",
    "predecessor": NAME,
    "reason": "rewound",
    "shared_end": str(Position(generation(SECOND), 3, 5)),
}


def claim_with(**changes: object) -> bytes:
    """A claim with other fields, and the checksum of these."""
    fields: dict[str, Any] = json.loads(claims.encode(FIRST))
    del fields["crc"]
    fields |= changes
    stated = {name: value for name, value in fields.items() if value is not ...}
    return json.dumps({**stated, "crc": crc32c(json.dumps(stated, indent=1).encode())}).encode()


def key_of(fields: dict[str, Any]) -> str:
    return claim_key(2) if fields.get("generation") == SECOND else CLAIM


def test_a_claim_says_what_was_written() -> None:
    assert claims.decode(CLAIM, claim_with()) == FIRST
    continued = claims.decode(claim_key(2), claim_with(**CONTINUES))
    assert (continued.shift, continued.predecessor) == (1, NAME)
    assert claims.decode(claim_key(2), claims.encode(continued)) == continued
    diverged = claims.decode(claim_key(2), claim_with(**DIVERGED))
    assert diverged.shared_end == Position(generation(SECOND), 3, 5)
    assert claims.decode(claim_key(2), claims.encode(diverged)) == diverged
    counted = claims.decode(CLAIM, claim_with(transactions={"b": 0, "a": 7}))
    assert counted.transactions == (("b", 0), ("a", 7))
    assert claims.decode(CLAIM, claims.encode(counted)) == counted


def test_a_claim_carries_the_transactions_of_the_applications_that_wrote_last() -> None:
    held: tuple[tuple[str, int], ...] = ()
    for number in range(MAX_TRANSACTIONS):
        held = claims.add_transaction(held, f"a{number}", number)
    held = claims.add_transaction(held, "a0", 9)
    assert held[-1] == ("a0", 9)
    assert len(held) == MAX_TRANSACTIONS
    held = claims.add_transaction(held, "new", 1)
    assert len(held) == MAX_TRANSACTIONS
    assert "a1" not in dict(held)
    assert dict(held)["a0"] == 9
    full = replace(FIRST, host="h" * 200, transactions=held)
    assert claims.decode(CLAIM, claims.encode(full)) == full


@pytest.mark.parametrize(
    "changes",
    [
        *({"first": value} for value in (-1, True, 1 << 64, 1.0, "3", None, ...)),
        *({"time": value} for value in (-1, False, 1 << 63, 1.5, None)),
        *({"shift": value} for value in (1, True, 0.0, None)),
        *({name: value} for name in ("log", "format", "owner", "host") for value in (5, None, ["x"], "\ud800", ...)),
        {"generation": "x"},
        {"relation": "other"},
        {"relation": "continues"},
        {"relation": "diverged"},
        {"fencing": "other"},
        {"version": True},
        {"predecessor": "0000000000000000"},
        {**CONTINUES, "relation": "first"},
        {**CONTINUES, "relation": "diverged"},
        {**CONTINUES, "predecessor": SECOND},
        {**CONTINUES, "predecessor": "0000000300000000"},
        {**CONTINUES, "predecessor": None},
        {**CONTINUES, "predecessor_end": "0000000000000009/0000000000000000/0000000000000000"},
        {**CONTINUES, "predecessor_end": 5},
        {**CONTINUES, "shift": 1 << 64},
        {**CONTINUES, "shift": -(1 << 64)},
        {**CONTINUES, "reason": "\udfff"},
        {**CONTINUES, "shared_end": DIVERGED["shared_end"]},
        {**DIVERGED, "shared_end": 5},
        {**DIVERGED, "shared_end": str(Position(generation(SECOND), 2, 5))},
        {**DIVERGED, "shared_end": str(Position(NAME, 3, 5))},
        *({"transactions": value} for value in ({}, [], "a", 5, {"a": -1}, {"a": True}, {"a": "1"}, {"a": 1 << 63})),
        {"transactions": {"\udfff": 1}},
        {"transactions": {str(number): 1 for number in range(MAX_TRANSACTIONS + 1)}},
    ],
)
def test_a_field_that_a_claim_cannot_have_is_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptObjectError, match="claim: ") as caught:
        claims.decode(key_of(changes), claim_with(**changes))
    assert caught.value.key == key_of(changes)


@pytest.mark.parametrize("crc", [None, "5", True, -1, 1 << 32])
def test_a_claim_without_its_checksum_is_damaged(crc: object) -> None:
    fields = {**json.loads(claims.encode(FIRST)), "crc": crc}
    if crc is None:
        del fields["crc"]
    with pytest.raises(CorruptObjectError, match=f"{CLAIM}: claim: crc is "):
        claims.decode(CLAIM, json.dumps(fields).encode())


@pytest.mark.parametrize("kind", ["snapshot", "footer", "header"])
def test_a_name_that_no_file_has_is_refused_by_the_objects_name(kind: str) -> None:
    key, decode = DECODERS[kind]
    document = json.dumps(DOCUMENTS[kind]("\ud800.log")).encode()
    if kind == "header":
        document = b'%s,"header_crc":%d}' % (document[:-1], crc32c(document))
    with pytest.raises(CorruptObjectError, match="file") as caught:
        decode(document)
    assert caught.value.key == key
    assert str(caught.value).isascii()


def _header(file: str) -> dict[str, Any]:
    fields = {name: 0 for name in wal_segment.WalHeader.__slots__ if name != "final"}
    texts = {"log": "0" * 32, "format": "litelog", "owner": "o", "previous": "", "file": file}
    nothing = dict.fromkeys(("first", "next", "lowest", "highest", "sealed", "successor"))
    return {"version": 1, **fields, **texts, **nothing, "generation": NAME, "check_digest": None, "check_start": None}


def _footer(file: str) -> dict[str, Any]:
    names = set(sealed_segment.SealedFooter.__slots__) - {"codec"}
    return {**dict.fromkeys(names), "log": "", "format": "", "generation": NAME} | {
        "owner": "",
        "file": file,
    }


def _snapshot(file: str) -> dict[str, Any]:
    column = [1]
    named = dict.fromkeys(("sealed_index", "length", "records", "first", "lowest", "shipped_first"), column)
    more = {"next": [0], "highest": [0], "shipped_last": [0], "size": [100], "coarse": [], "generation": [[NAME, 1]]}
    packed = {"digest": "A" * 43 + "=", "crc": "AAAAAA==", "file": [file]}
    texts = {"log": "0" * 32, "format": "litelog", "generation": NAME, "owner": "o", "predecessor_end": None}
    return {"version": 1, **texts, "first": 0, "next": 1, "created": 0, "segments": {**named, **more, **packed}}


DOCUMENTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "header": _header,
    "footer": _footer,
    "snapshot": _snapshot,
}
