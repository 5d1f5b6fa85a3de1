"""Which files are fragments, which of them cover a journal, and what is missing."""

from __future__ import annotations

from random import Random

import pytest

from litelog.errors import ConfigError, NothingToRestoreError
from litelog.fragments.cover import Codec, Fragment, find_cover, find_gaps, list_fragments, parse_fragment
from replica_clients.memory import MemoryStore
from tests.builders.journal_fragments import fragment

SHA1 = "0102030405060708090a0b0c0d0e0f1011121314"


def made(*bounds: tuple[int, int]) -> list[Fragment]:
    fragments = [Fragment(f"{begin}-{end}", begin, end, "", Codec.NONE, "") for begin, end in bounds]
    return sorted(fragments, key=lambda each: (each.begin, -each.end))


def covered(fragments: list[Fragment], start: int | None = None, stop: int | None = None) -> list[tuple[str, int, int]]:
    return [(span.fragment.key, span.start, span.stop) for span in find_cover(fragments, start, stop)]


@pytest.mark.parametrize(
    ("key", "codec", "journal"),
    [
        (f"00000000499602d2-7fffffffffffffff-{SHA1}.gz", Codec.GZIP, ""),
        (f"a=1/b=2/499602d2-7fffffffffffffff-{SHA1}.raw", Codec.NONE, ""),
        (f"acme/logs/date=1/00000000499602d2-7fffffffffffffff-{SHA1}.sz", Codec.SNAPPY, "acme/logs"),
        (f"00000000499602d2-7fffffffffffffff-{SHA1}.zst", Codec.ZSTANDARD, ""),
        (f"00000000499602d2-7fffffffffffffff-{SHA1}", Codec.OFFLOADED, ""),
        (f"00000000499602d2-7fffffffffffffff-{SHA1}.gzod", Codec.OFFLOADED, ""),
    ],
)
def test_a_name_states_the_bytes_their_sum_and_the_codec(key: str, codec: Codec, journal: str) -> None:
    assert parse_fragment(key, 9) == Fragment(key, 1234567890, (1 << 63) - 1, SHA1, codec, journal, 9)


@pytest.mark.parametrize(
    "name",
    [
        "a.gz",
        f"2-1-{SHA1}.gz",
        f"0-8000000000000000-{SHA1}.gz",
        f"0-1-{SHA1[:-1]}.gz",
        f"0-1-{SHA1}.lz4",
        f".partial-0-1-{SHA1}.gz",
        f"-1-1-{SHA1}.gz",
        f"0-1-{SHA1}.gz.tmp",
    ],
)
def test_other_names_are_no_fragments(name: str) -> None:
    assert parse_fragment(f"a/{name}") is None


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ([(0, 5), (5, 9)], [("0-5", 0, 5), ("5-9", 5, 9)]),
        ([(0, 5), (0, 9), (5, 9)], [("0-9", 0, 9)]),
        ([(0, 5), (3, 9), (4, 7)], [("0-5", 0, 5), ("3-9", 5, 9)]),
        ([(0, 5), (2, 6), (4, 9), (9, 12)], [("0-5", 0, 5), ("4-9", 5, 9), ("9-12", 9, 12)]),
        ([(3, 5), (8, 9)], [("3-5", 3, 5), ("8-9", 8, 9)]),
    ],
)
def test_the_fragment_that_reaches_furthest_is_read(
    bounds: list[tuple[int, int]], expected: list[tuple[str, int, int]]
) -> None:
    assert covered(made(*bounds)) == expected


def test_a_cover_has_bounds() -> None:
    fragments = made((0, 5), (5, 9), (20, 30))
    assert covered(fragments, 3, 7) == [("0-5", 3, 5), ("5-9", 5, 7)]
    assert covered(fragments, 9, 25) == [("20-30", 20, 25)]
    assert covered(fragments, 9, 20) == []
    assert covered(fragments, 30) == []
    assert find_gaps(find_cover(fragments)) == [(9, 20)]


def test_any_fragments_are_covered_as_far_as_they_reach() -> None:
    random = Random(4)
    for _ in range(300):
        bounds = {
            (begin, begin + random.randrange(1, 9)) for begin in random.choices(range(40), k=random.randrange(1, 9))
        }
        spans = find_cover(made(*bounds))
        assert all(span.fragment.begin <= span.start < span.stop <= span.fragment.end for span in spans)
        held = {at for begin, end in bounds for at in range(begin, end)}
        assert [at for span in spans for at in range(span.start, span.stop)] == sorted(held)
        gaps = {at for first, following in find_gaps(spans) for at in range(first, following)}
        assert gaps == set(range(min(held), max(held))) - held


def test_fragments_are_listed_from_all_partitions() -> None:
    store = MemoryStore("journal")
    for begin, folder in ((9, "date=2/hour=1/"), (0, "date=1/"), (4, "")):
        store.put(*_put(fragment(begin, b"x" * 5, folder=folder)))
    store.put(*_put(fragment(20, b"")))
    store.put("README", [b"not a fragment"])
    assert [each.begin for each in list_fragments(store)] == [0, 4, 9]


def test_fragments_of_several_journals_are_refused() -> None:
    store = MemoryStore("journal")
    for folder in ("a/one/", "a/two/date=3/"):
        store.put(*_put(fragment(0, b"x", folder=folder)))
    with pytest.raises(ConfigError, match=r"fragments of 2 journals \(a/one, a/two\); add one of them to the URL"):
        list_fragments(store)


def test_a_place_without_fragments_is_named() -> None:
    with pytest.raises(NothingToRestoreError, match="no fragments of a journal are here"):
        list_fragments(MemoryStore("journal"))


def _put(made: tuple[str, bytes]) -> tuple[str, list[bytes]]:
    return made[0], [made[1]]
