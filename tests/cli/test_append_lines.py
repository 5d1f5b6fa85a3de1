"""Lines from standard input are cut into records, for input in pieces of any size."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog_cli.verbs.append import DEFAULT_BATCH, MAX_LINE_BYTES, line_batches, split_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Command


def reading(pieces: list[bytes]) -> Callable[[], bytes]:
    rest = iter([*(piece for piece in pieces if piece), b""])
    return lambda: next(rest)


def lines_of(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    return lines if lines[-1] else lines[:-1]


texts = st.lists(st.sampled_from([b"", b"a", b"bc\n", b"\n", b"\r\n", b"\xff\x00", b"longer line\nand"]), max_size=30)


@given(texts, st.none() | st.integers(1, 5))
def test_lines_are_the_same_in_pieces_of_any_size(pieces: list[bytes], batch: int | None) -> None:
    batches = list(line_batches(reading(pieces), batch))
    assert [line for lines in batches for line in lines] == lines_of(b"".join(pieces))
    assert all(batches)


@given(texts, st.integers(1, 5))
def test_a_batch_has_its_number_of_records_except_for_the_last(pieces: list[bytes], batch: int) -> None:
    sizes = [len(lines) for lines in line_batches(reading(pieces), batch)]
    assert all(size == batch for size in sizes[:-1])


def test_without_a_batch_size_all_waiting_lines_are_appended_at_once_up_to_a_limit() -> None:
    pieces = [b"a\nb\n", b"c\nd", b"\n" * (DEFAULT_BATCH + 5)]
    assert [len(lines) for lines in line_batches(reading(pieces), None)] == [2, 1, DEFAULT_BATCH, 5]


def test_long_lines_are_committed_before_their_batch_is_full() -> None:
    pieces = [b"x" * (1 << 20) + b"\n"] * 20
    sizes = [len(lines) for lines in line_batches(reading(pieces), 1000)]
    assert sizes == [8, 8, 4]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    pieces = [b"x" * (1 << 20)] * ((MAX_LINE_BYTES >> 20) + 1)
    with pytest.raises(click.ClickException, match="longer than"):
        list(line_batches(reading(pieces), None))


def test_a_separator_need_not_be_utf_8(litelog: Command) -> None:
    done = litelog("append", "--key-separator", os.fsdecode(b"\xa7"), "log", text="a line without\n")
    assert (done.code, done.out) == (0, "1\n")


def test_keys_stand_before_the_first_separator() -> None:
    lines = [b"k\tv\tw", b"no key", b"\tempty key", b"k\t"]
    assert split_keys(lines, b"\t") == ([b"k", None, b"", b"k"], [b"v\tw", b"no key", b"empty key", b""])


def test_each_commit_is_acknowledged_with_the_next_sequence(litelog: Command) -> None:
    done = litelog("append", "--batch", "2", "log", text="a\nb\nc\nd\ne")
    assert (done.code, done.out.split()) == (0, ["2", "4", "5"])
    done = litelog("append", "--json", "log", text="f\n")
    assert done.lines == [{"version": 1, "first": 5, "next": 6, "durable_next": 6}]


def test_an_acknowledgement_comes_before_more_input_does(litelog: Command) -> None:
    process = litelog.start("append", "log")
    assert process.stdin
    assert process.stdout
    for number in range(1, 4):
        process.stdin.write("a line\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{number}\n"


def test_a_second_writer_is_turned_away(litelog: Command) -> None:
    process = litelog.start("append", "log")
    assert process.stdin
    assert process.stdout
    process.stdin.write("a line\n")
    process.stdin.flush()
    process.stdout.readline()
    second = litelog("append", "log", text="another\n")
    assert second.code == 1
    assert "is in use by another process" in second.err
