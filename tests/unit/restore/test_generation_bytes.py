"""The bytes of a log segment come in runs of some MiB, from as many requests, and lie as in the log segment's pages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from litelog.codec.page_buffer import lies_in_pages
from litelog.errors import CorruptObjectError
from litelog.objects.layout import sealed_key
from litelog.restore import generation_bytes
from litelog.restore.generation_bytes import GenerationBytes
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.replica_builder import FORMAT, LogSegment, ReplicaBuilder, make_segment
from tests.builders.stores import CountingStore

SMALL_BYTES = 1000


@pytest.fixture
def segment() -> LogSegment:
    return make_segment(0, [1] * 200)


@pytest.fixture
def small_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation_bytes, "GET_BYTES", SMALL_BYTES)


def sealed_history(segment: LogSegment) -> tuple[ReplicaBuilder, GenerationBytes, CountingStore]:
    """A replica with one log segment, sealed with a commit in each frame."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(segment)
    entry = built.seal(0)
    store = CountingStore(builder.store)
    return builder, GenerationBytes(ObjectReplicaClient(store), built.claim, FORMAT, [], [entry]), store


@pytest.mark.usefixtures("small_gets")
@pytest.mark.parametrize("threads", [0, 3])
def test_a_sealed_segment_is_read_in_few_runs_that_lie_as_in_its_pages(segment: LogSegment, threads: int) -> None:
    _, history, store = sealed_history(segment)
    size = len(segment.data)
    with ThreadPoolExecutor(max(1, threads)) as executor:
        runs = list(history.chunks(segment.name, 100, size - 50, executor if threads else None))
    assert b"".join(run.data for run in runs) == segment.data[100 : size - 50]
    assert all(lies_in_pages(run.data, run.start) for run in runs)
    assert [run.end for run in runs[:-1]] == [run.start for run in runs[1:]]
    assert len(runs) <= 2 * size // SMALL_BYTES < len(segment.ends) // 4
    assert store.requests["open"] <= len(runs) + 1


@pytest.mark.usefixtures("small_gets")
def test_damage_in_one_frame_is_an_error_after_the_runs_before_it(segment: LogSegment) -> None:
    builder, history, _ = sealed_history(segment)
    key = sealed_key(history.claim.generation, 0)
    body = bytearray(builder.objects()[key])
    body[len(body) // 3] ^= 1
    builder.store.put(key, [body], create_only=False)
    found = bytearray()

    def read_all() -> None:
        for run in history.chunks(segment.name, 0, len(segment.data)):
            found.extend(run.data)

    with pytest.raises(CorruptObjectError, match=key):
        read_all()
    assert 0 < len(found) < len(segment.data)
    assert segment.data.startswith(found)


def test_a_large_wal_segment_lies_as_in_the_pages_of_its_log_segment() -> None:
    segment = make_segment(0, [1, 1, 1], tag=Random(1).randbytes(700_000))
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship(segment.data[: segment.ends[0]], segment.name)
    built.ship(segment.data[segment.ends[0] :], segment.name)
    history = GenerationBytes(builder.client, built.claim, FORMAT)
    first, second = history.chunks(segment.name, 0, len(segment.data))
    assert bytes(first.data) + second.data == segment.data
    assert second.start == segment.ends[0]
    assert lies_in_pages(second.data, second.start)
