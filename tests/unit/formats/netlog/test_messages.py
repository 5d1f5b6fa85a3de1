"""Which payloads of plain messages are looked at, as they may be sets whose codec is damaged."""

from __future__ import annotations

import gzip
from random import Random

import numpy as np
import pytest

from litelog.formats.netlog.messages import find_suspects, is_set
from tests.builders.old_logs import netlog_message

TWO = netlog_message(b"one") + netlog_message(b"two")


def suspects(payloads: list[bytes]) -> list[int]:
    """The numbers of the payloads, which lie back to back, that ``is_set`` has to look at."""
    ends = np.cumsum([len(each) for each in payloads])
    starts = np.append(0, ends[:-1])
    return [int(number) for number in find_suspects(memoryview(b"".join(payloads)), starts, ends)]


def test_the_first_byte_alone_makes_no_suspect() -> None:
    """Values with a schema's number begin with a zero, and other binary ones with any byte. ``is_set`` takes one at a
    time, in Python."""
    framed = [b"\x00\x00\x00\x00\x07" + b"\x1evalue %d" % number for number in range(1000)]
    assert suspects([*framed, *(bytes([first]) + bytes.fromhex("ff") * 30 for first in (0, 1, 2, 3, 0x1F))]) == []
    assert suspects([*framed, TWO, b"\x1f", gzip.compress(TWO)]) == [1000, 1002]


def test_no_set_is_missed() -> None:
    random = Random(7)
    inner = [netlog_message(random.randbytes(random.randrange(4))) for _ in range(300)]
    payloads = [b"".join(random.choices(inner, k=random.randrange(1, 4))) for _ in range(300)]
    payloads += [gzip.compress(each) for each in payloads[:50]] + [each[:-1] for each in payloads[:50]]
    sets = [number for number, each in enumerate(payloads) if is_set(memoryview(each))]
    assert len(sets) > 100
    assert set(sets) <= set(suspects(payloads))


@pytest.mark.parametrize("size", [1, 8, 9, 18, 27, 900])
def test_zeros_are_no_set(size: int) -> None:
    assert not is_set(memoryview(bytes(size)))
    assert not is_set(memoryview(gzip.compress(bytes(size))))
    assert is_set(memoryview(bytes(9) + netlog_message(b"one")))
