"""Positions in a replica: generation, index and offset, their order and their text form. Also the names of claims."""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

from litelog.dataclass import dataclass

Generation = NewType("Generation", str)
"""16 lowercase hex digits: 8 of the epoch, 8 random. Sorts by age."""

MAX_EPOCH = 0xFFFF_FFFF
MAX_INDEX = MAX_OFFSET = 0xFFFF_FFFF_FFFF_FFFF

_GENERATION = re.compile(r"[0-9a-f]{16}")
_POSITION = re.compile(r"([0-9a-f]{16})/([0-9a-f]{16})/([0-9a-f]{16})")
GIVEN_POSITION = re.compile(r"([0-9a-f]{16})/([0-9a-f]{1,16})/([0-9a-f]{1,16})")
"""A position that a person gives."""


def generation(text: str) -> Generation:
    """``text`` as a generation. Raises ValueError if it is not one."""
    if not _GENERATION.fullmatch(text):
        raise ValueError(f"not a generation (16 lowercase hex digits): {text!r}")
    return Generation(text)


def new_generation(epoch: int, random_bits: int) -> Generation:
    """The generation of ``epoch`` with the low 32 of ``random_bits``."""
    if not 0 <= epoch <= MAX_EPOCH:
        raise ValueError(f"epoch out of range: {epoch}")
    return Generation(f"{epoch:08x}{random_bits & 0xFFFF_FFFF:08x}")


def epoch_of(name: Generation) -> int:
    """The epoch that a generation was claimed with."""
    return int(name[:8], 16)


class ClaimName(NamedTuple):
    """The name of a claim: its epoch and, under isolated fencing, its generation."""

    epoch: int
    isolated: Generation | None = None


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a replica: byte ``offset`` of log segment ``index`` in a generation."""

    generation: Generation
    index: int
    offset: int

    def __str__(self) -> str:
        return f"{self.generation}/{self.index:016x}/{self.offset:016x}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position in ``text``, which has the form that ``str`` gives. Raises ValueError for anything else."""
        match = _POSITION.fullmatch(text)
        if not match:
            raise ValueError(f"not a position (generation/index/offset in hex): {text!r}")
        return cls(Generation(match[1]), int(match[2], 16), int(match[3], 16))

    @classmethod
    def parse_given(cls, text: str) -> Position:
        """The position that a person gives: as for ``parse``, or without leading zeros, as messages for people state
        it. Raises ValueError."""
        short = GIVEN_POSITION.fullmatch(text)
        return cls.parse(text if short is None else f"{short[1]}/{short[2]:0>16}/{short[3]:0>16}")
