"""A stream whose log's history forks continues at the fork, and says which sequences differ now."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import DivergedError
from litelog.formats.lines import LinesFormat
from litelog.formats.raw import RawFormat
from litelog.objects.claim import Relation
from tests.builders.replica_builder import GenerationBuilder, ReplicaBuilder, make_log, make_segment
from tests.builders.spark_streaming import Query, live_builder

if TYPE_CHECKING:
    from litelog.formats import LogFormat

OLD = [[1, 1, 1], [1, 1, 1], [1, 1, 1, 1]]
"""Ten records, a commit each."""
NEW = [[1, 1, 1], [1, 2], [1, 1]]
"""A commit's records have the time of the first, so the sixth record (5) differs from that of OLD."""


def _ship(generation: GenerationBuilder, shape: list[list[int]], *, sealed: int = 0) -> None:
    log = make_log(shape)
    for segment in log:
        generation.ship_segment(segment, cuts=[0], final=None if segment is log[-1] else "last")
    if sealed:
        generation.snapshot(sealed)
        generation.prune(sealed)


def _read(*, sealed: int = 0, **options: Any) -> tuple[ReplicaBuilder, str, Query, Query]:
    """A replica, and two streams that have read it: a strict stream, and a stream that continues after a loss."""
    builder, url = live_builder()
    _ship(builder.add(), OLD, sealed=sealed)
    return builder, url, Query(url, **options).run(), Query(url, failOnDataLoss="false", **options).run()


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [(0, 0), (2, 0), (2, 2), (0, 1), (1, 2)])
def test_a_stream_continues_at_the_fork_with_the_new_history(
    old: int, new: int, caplog: pytest.LogCaptureFixture
) -> None:
    builder, url, strict, lossy = _read(sealed=old, maxFilesPerTrigger=2)
    _ship(builder.add(builder.claim(Relation.DIVERGED)), NEW, sealed=new)
    names = [generation.name for generation in builder.generations]
    said = (
        rf"rewound; generation {names[1]} forks from generation {names[0]} at sequence 5: sequences 5 to 9 now differ"
    )
    with pytest.raises(DivergedError, match=said):
        strict.run()
    with caplog.at_level(logging.WARNING):
        lossy.run()
    assert lossy.sequences() == [*range(10), *range(5, 8)]
    assert "sequences 5 to 9 now differ" in caplog.text
    new_rows = lossy.all_rows()[10:]
    assert new_rows == Query(url).run().all_rows()[5:]
    lossy.restart(forget=len(lossy.rows))
    assert not lossy.step()


@pytest.mark.slow
def test_a_history_that_only_grew_repeats_nothing(caplog: pytest.LogCaptureFixture) -> None:
    builder, _, _, lossy = _read(sealed=1)
    _ship(builder.add(builder.claim(Relation.DIVERGED)), [*OLD, [1, 1]])
    assert lossy.run().sequences() == list(range(12))
    assert "at sequence 10: no sequence differs" in caplog.text


@pytest.mark.slow
def test_a_log_that_was_overwritten_is_read_from_its_first_record() -> None:
    builder, url, strict, lossy = _read()
    generation = builder.add(builder.claim(Relation.DIVERGED))
    generation.ship_segment(make_segment(0, [4, 4], tag=b"x"), final=None)
    with pytest.raises(DivergedError, match="at sequence 0: sequences 0 to 9 now differ"):
        strict.run()
    assert lossy.run().sequences() == [*range(10), *range(8)]
    assert lossy.all_rows()[10:] == Query(url).run().all_rows()


@pytest.mark.slow
def test_if_the_old_history_is_gone_all_of_the_new_one_is_read() -> None:
    builder, _, strict, lossy = _read(sealed=1)
    first = builder.generations[0]
    first.snapshot(2, first=1)
    first.prune(2)
    builder.client.delete_sealed_segments([(first.name, 0)])
    _ship(builder.add(builder.claim(Relation.DIVERGED)), [[2, 2], [3], [3]])
    with pytest.raises(DivergedError, match="too little is left to say where: any sequence up to 9 may now differ"):
        strict.run()
    assert lossy.run().sequences() == [*range(10), *range(10)]


@pytest.mark.slow
@pytest.mark.parametrize("log_format", [LinesFormat("app.*"), RawFormat("app.*")])
def test_other_formats_continue_at_the_fork(log_format: LogFormat) -> None:
    builder, url = live_builder(log_format)
    first = builder.add()
    first.ship(b"aa\nbb\n", "app.0", final=True)
    first.ship(b"cc\ndd\n", "app.1")
    query = Query(url, failOnDataLoss="false").run()
    second = builder.add(builder.claim(Relation.DIVERGED))
    second.ship(b"aa\nbb\n", "app.0", final=True)
    second.ship(b"cc\nee\nff\n", "app.1")
    found = b"".join(query.run().values()).replace(b"\n", b"")
    assert found == b"aabbccddeeff"
