"""The soak distinguishes leaks from noise."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.faults.soak_gauges import GUESTS, LEAK_BYTES, MAX_THREADS, Gauge, assert_flat, growth

QUIET = Gauge(resident_bytes=128 << 20, files=83, sockets=18, threads=53)
FEW, NIGHT = 3, 75
NOISE = {"files": 2, "sockets": 2, "resident_bytes": 4 << 20}


def of(field: str, *more: float) -> list[Gauge]:
    """Gauges of a daemon that takes more of one resource, round by round."""
    return [replace(QUIET, **{field: getattr(QUIET, field) + each}) for each in more]


@pytest.mark.parametrize("rounds", [FEW, 4, 5, 6, NIGHT])
@pytest.mark.parametrize("field", ["files", "sockets"])
def test_a_descriptor_that_each_guest_leaves_open_is_found(field: str, rounds: int) -> None:
    leaked = of(field, *(GUESTS * number for number in range(rounds)))
    assert growth(leaked, field) == GUESTS
    with pytest.raises(AssertionError, match=field):
        assert_flat(leaked)


def test_six_rounds_find_six_megabytes_a_round() -> None:
    with pytest.raises(AssertionError, match="resident_bytes"):
        assert_flat(of("resident_bytes", *((6 << 20) * number for number in range(6))))


def test_a_night_detects_memory_that_each_guest_leaks() -> None:
    with pytest.raises(AssertionError, match="resident_bytes"):
        assert_flat(of("resident_bytes", *(GUESTS * LEAK_BYTES * number for number in range(NIGHT))))


@pytest.mark.parametrize("rounds", [6, 9, NIGHT])
def test_more_rounds_find_a_descriptor_of_each_second_guest(rounds: int) -> None:
    with pytest.raises(AssertionError, match="files"):
        assert_flat(of("files", *(GUESTS / 2 * number for number in range(rounds))))


@pytest.mark.parametrize("field", NOISE)
@pytest.mark.parametrize("more", [(0, 0, 1), (0, 1, 1), (0, 1, 0), (1, 0, 1), (0, 1, 2), (1, 0, 0)])
def test_noise_between_few_rounds_is_none(field: str, more: tuple[int, ...]) -> None:
    """Two descriptors or four megabytes between any two rounds are noise, and so are eight megabytes in all."""
    assert_flat(of(field, *(NOISE[field] * each for each in more)))


@pytest.mark.parametrize(("field", "more"), [("files", 40), ("sockets", 40), ("resident_bytes", 64 << 20)])
@pytest.mark.parametrize("rounds", [FEW, NIGHT])
def test_memory_that_is_taken_only_once_is_not_a_leak(field: str, more: int, rounds: int) -> None:
    for at in range(rounds):
        assert_flat(of(field, *(more * (number >= at) for number in range(rounds))))


@pytest.mark.parametrize("field", NOISE)
@pytest.mark.parametrize("rounds", [FEW, 6, NIGHT])
def test_noise_in_each_round_is_no_leak(field: str, rounds: int) -> None:
    random = Random(0)
    for _ in range(200):
        assert_flat(of(field, *(random.uniform(0, NOISE[field]) for _ in range(rounds))))


@pytest.mark.slow
def test_threads_are_limited() -> None:
    assert_flat([replace(QUIET, threads=MAX_THREADS)] * FEW)
    with pytest.raises(AssertionError):
        assert_flat([QUIET, QUIET, replace(QUIET, threads=MAX_THREADS + 1)])
