"""Digests that are computed together are those of hashlib, whatever the pieces, the threads and the order."""

from __future__ import annotations

import gc
import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.codec import joint_sha256 as module
from litelog.codec.joint_sha256 import LEAST_BYTES, JointSha256, joint_sha256
from litelog.native.digests import State, can_hash
from litelog.native.library import without_library
from tests.sampling import SEED, examples

if TYPE_CHECKING:
    from collections.abc import Sequence

needs_library = pytest.mark.skipif(not can_hash(), reason="no SHA-256 is compiled for this processor")

BYTES = random.Random(SEED).randbytes(1 << 20)
SIZES = st.one_of(st.sampled_from((0, 1, 55, 56, 63, 64, 65, 128, LEAST_BYTES)), st.integers(0, 3 * LEAST_BYTES))


def expected(pieces: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(pieces)).hexdigest()


@needs_library
@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), SIZES, st.integers(0, 500)), max_size=30),
    st.sampled_from((0, 100, LEAST_BYTES, 3 * LEAST_BYTES)),
)
def test_digests_that_get_bytes_in_turns_are_those_of_hashlib(
    turns: list[tuple[int, int, int]], waiting_bytes: int
) -> None:
    digests = [JointSha256(waiting_bytes) for _ in range(3)]
    pieces: list[list[bytes]] = [[], [], []]
    for number, size, start in turns:
        piece = BYTES[start : start + size]
        digests[number].update(piece)
        pieces[number].append(piece)
    assert [each.hexdigest() for each in digests] == [expected(each) for each in pieces]


@needs_library
def test_digests_of_several_threads_are_those_of_hashlib() -> None:
    def cut(seed: int) -> list[bytes]:
        draw = random.Random(f"{SEED} {seed}")
        ends = sorted(draw.randrange(len(BYTES)) for _ in range(40))
        return [BYTES[start:end] for start, end in zip([0, *ends], [*ends, len(BYTES)], strict=True)]

    def compute(pieces: Sequence[bytes]) -> str:
        digest = JointSha256(LEAST_BYTES)
        for piece in pieces:
            digest.update(piece)
        return digest.hexdigest()

    logs = [cut(seed)[: 41 - seed] for seed in range(24)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(compute, logs)) == [expected(pieces) for pieces in logs]
    assert not list(module._DIGESTS)


@needs_library
def test_bytes_wait_for_another_digest_and_then_both_are_hashed() -> None:
    first, second = JointSha256(1 << 20), JointSha256(1 << 20)
    first.update(BYTES[: 1 << 19])
    assert first.waiting == 1 << 19
    second.update(BYTES[: 1 << 19])
    assert (first.waiting, second.waiting) == (0, 0)


@needs_library
def test_no_more_bytes_wait_than_may() -> None:
    digest = JointSha256(LEAST_BYTES)
    for at in range(0, len(BYTES), 5_000):
        digest.update(BYTES[at : at + 5_000])
        assert digest.waiting <= LEAST_BYTES
    assert digest.hexdigest() == expected([BYTES])


@needs_library
def test_a_digest_that_nobody_finishes_is_gone_with_its_bytes() -> None:
    dropped = JointSha256(1 << 20)
    dropped.update(BYTES[: 1 << 19])
    del dropped
    gc.collect()
    left = JointSha256(1 << 20)
    left.update(BYTES)
    assert (left.waiting, left.hexdigest()) == (1 << 20, expected([BYTES]))


class FailingState(State):
    """A state that runs out of memory after it has taken bytes together with another one."""

    def take_with(self, data: memoryview, other: State, other_data: memoryview) -> None:
        super().take_with(data, other, other_data)
        raise MemoryError


@needs_library
def test_a_thread_that_fails_leaves_no_wrong_digest_to_another() -> None:
    failing, other, third = (JointSha256(1 << 20) for _ in range(3))
    other.update(BYTES[: 1 << 19])
    failing._state = FailingState()
    with pytest.raises(MemoryError):
        failing.update(BYTES[: 1 << 19])
    third.update(BYTES)
    assert third.hexdigest() == expected([BYTES]), "it does not take part with a lost one"
    for lost in (failing, other):
        with pytest.raises(MemoryError):
            lost.update(b"more")
        with pytest.raises(MemoryError):
            lost.hexdigest()


@needs_library
def test_a_finished_digest_takes_nothing_more() -> None:
    digest = JointSha256(0)
    digest.hexdigest()
    with pytest.raises(ValueError, match="finished"):
        digest.update(b"more")


def test_without_the_library_hashlib_does_the_work() -> None:
    with without_library():
        digest = joint_sha256()
        assert not isinstance(digest, JointSha256)
        digest.update(BYTES)
        assert digest.hexdigest() == expected([BYTES])
        with pytest.raises(RuntimeError, match="no SHA-256 was compiled"):
            JointSha256(0)
