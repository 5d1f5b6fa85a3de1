"""Streams of journals without Spark: each line once, however fragments appear and batches are repeated."""

from __future__ import annotations

import json
import pickle
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import ConfigError, UnknownVersionError
from litelog.fragments.cover import find_cover, list_fragments
from litelog.fragments.following import GAP_SECONDS
from litelog.fragments.reader import JournalGapError
from litelog.spark.scan.journal import journal_columns, read_journal
from litelog.spark.stream.batching import Budget
from litelog.spark.stream.journal import JournalStream
from litelog.spark.stream.options import parse_stream_options
from litelog.stores.registry import open_store
from tests.builders.journal_fragments import EXTENSIONS, fragment
from tests.builders.manual_clock import ManualClock
from tests.builders.spark_reading import stored
from tests.sampling import sampled

LINES = [b'{"n": %d}' % number for number in range(200)]
CONTENT = b"".join(line + b"\n" for line in LINES)
STARTS = [0]
for _line in LINES:
    STARTS.append(STARTS[-1] + len(_line) + 1)


class Journal:
    """A journal in a store, and a query that reads it as a stream."""

    def __init__(self, *, available_now: bool = False, **options: object) -> None:
        self.url = stored({})
        self.store = open_store(self.url)
        self.options = {"path": self.url, "format": "gazette", **{k.lower(): str(v) for k, v in options.items()}}
        self.clock = ManualClock()
        self.available_now = available_now
        self.offsets: list[str] = []
        self.rows: list[list[tuple[int, bytes]]] = []
        self.start()

    def start(self) -> None:
        """Begin with only the checkpoint in memory."""
        self.parsed = parse_stream_options(self.options)
        self.stream = JournalStream(self.parsed, clock=self.clock)
        if self.available_now:
            self.stream.prepare()

    def put(self, first: int, stop: int, extension: str = ".raw") -> str:
        """Persist the lines [first, stop) as a fragment."""
        key, body = fragment(STARTS[first], CONTENT[STARTS[first] : STARTS[stop]], extension)
        self.store.put(key, [body])
        return key

    def merge(self) -> None:
        """Persist what is there from the first line on as one fragment, and delete the fragments that it holds."""
        held, stop = [], 0
        for span in find_cover(list_fragments(self.store)):
            if span.start > stop:
                break
            held.append(span.fragment)
            stop = span.stop
        if len(held) > 1:
            self.put(0, STARTS.index(stop), ".sz")
            self.store.delete([each.key for each in held if each.end <= stop])

    def step(self) -> bool:
        """Run one batch. Returns False if there is nothing new."""
        last = json.loads(self.offsets[-1]) if self.offsets else self.stream.initial()
        budget = Budget(self.parsed.max_bytes, self.parsed.max_files, self.parsed.max_records)
        end = json.dumps(self.stream.latest(last, budget))
        self.clock.advance(1.0)
        if end == json.dumps(last):
            return False
        self.offsets.append(end)
        self.rows.append(self.read(len(self.offsets) - 1))
        return True

    def read(self, number: int) -> list[tuple[int, bytes]]:
        """The rows of a batch. Each call plans it again."""
        first: Any = json.loads(self.offsets[number - 1]) if number else self.stream.initial()
        partitions = pickle.loads(pickle.dumps(self.stream.plan(first, json.loads(self.offsets[number]))))
        columns = journal_columns(self.parsed.read)
        return [
            (row["sequence"], row["value"])
            for partition in partitions
            for batch in read_journal(partition, columns)
            for row in batch.to_pylist()
        ]

    def run(self) -> Journal:
        while self.step():
            pass
        return self

    @property
    def lines(self) -> list[int]:
        """The numbers of the lines in all batches. AssertionError for a line at another offset than its own."""
        found = [row for batch in self.rows for row in batch]
        numbers = [LINES.index(value) for _, value in found]
        assert [sequence for sequence, _ in found] == [STARTS[number] for number in numbers]
        return numbers


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(60), 6, "journals that a stream reads"))
def test_each_line_is_in_one_batch_and_a_repeated_batch_is_the_same(seed: int) -> None:
    """Fragments overlap, appear in any order, and are replaced by longer ones; the driver begins again at any time."""
    random = Random(seed)
    journal = Journal(
        **random.choice([{}, {"maxFilesPerTrigger": 1}, {"maxBytesPerTrigger": 300}, {"numPartitions": 3}])
    )
    pieces, at = [], 0
    while at < len(LINES):
        stop = min(len(LINES), at + random.randrange(1, 30))
        pieces.append((max(0, at - random.choice([0, 0, 5])), stop))
        at = stop
    first, *others = pieces
    journal.put(*first)
    while others:
        for piece in random.sample(others[:3], random.randrange(min(3, len(others)) + 1)):
            journal.put(*piece, random.choice(EXTENSIONS))
            others.remove(piece)
        for _ in range(random.randrange(3)):
            journal.step()
        if random.random() < 0.2:
            journal.start()
        if journal.offsets and random.random() < 0.3:
            number = random.randrange(len(journal.offsets))
            assert journal.read(number) == journal.rows[number]
        if random.random() < 0.2:
            journal.merge()
    journal.run()
    assert journal.lines == list(range(len(LINES)))
    for key in [info.key for info in journal.store.list("")]:
        journal.store.delete([key])
    journal.put(0, len(LINES), ".gz")
    assert [journal.read(number) for number in range(len(journal.offsets))] == journal.rows


def test_batches_end_where_fragments_end_and_keep_to_their_limits() -> None:
    journal = Journal(maxFilesPerTrigger=2)
    for number in range(5):
        journal.put(10 * number, 10 * number + 10)
    journal.run()
    assert [len(batch) for batch in journal.rows] == [0, 20, 20, 10]
    assert journal.offsets[1] == json.dumps({"version": 1, "journal": STARTS[20]})


@pytest.mark.parametrize(("start", "first"), [("earliest", 10), ("latest", 20), (STARTS[13], 13), (STARTS[13] + 1, 14)])
def test_a_stream_begins_where_it_is_told_to(start: object, first: int) -> None:
    journal = Journal(startingSequence=start)
    assert not journal.step()
    journal.put(10, 20)
    journal.run()
    journal.put(20, 25)
    assert journal.run().lines == list(range(first, 25))


def test_a_start_before_the_first_fragment_is_a_gap() -> None:
    journal = Journal(startingSequence=3)
    journal.put(10, 20)
    with pytest.raises(JournalGapError, match=f"the bytes 3 to {STARTS[10] - 1}"):
        journal.step()
    lossy = Journal(startingSequence=3, failOnDataLoss="false")
    lossy.put(10, 20)
    assert lossy.run().lines == list(range(10, 20))


def test_an_earlier_fragment_is_waited_for_and_then_a_gap_is_an_error() -> None:
    journal = Journal()
    journal.put(0, 10)
    journal.run()
    journal.put(20, 30)
    journal.run()
    assert journal.lines == list(range(10))
    journal.put(10, 20)
    assert journal.run().lines == list(range(30))
    journal.put(40, 50)
    journal.run()
    journal.clock.advance(GAP_SECONDS)
    with pytest.raises(JournalGapError, match=f"the bytes {STARTS[30]} to {STARTS[40] - 1}"):
        journal.step()
    journal.options["failondataloss"] = "false"
    journal.start()
    assert not journal.step()  # a driver that begins again waits, too
    journal.clock.advance(GAP_SECONDS)
    assert journal.run().lines == [*range(30), *range(40, 50)]


def test_available_now_ends_at_the_fragments_that_were_there() -> None:
    journal = Journal(available_now=True, maxFilesPerTrigger=1)
    journal.put(0, 10)
    journal.start()
    journal.step()
    journal.put(10, 20)
    assert journal.run().lines == list(range(10))
    journal.start()
    assert journal.run().lines == list(range(20))
    journal.put(30, 40)
    journal.start()
    with pytest.raises(JournalGapError):
        journal.run()


def test_a_quiet_journal_costs_a_listing_for_each_poll_interval() -> None:
    journal = Journal(pollInterval="10s")
    journal.put(0, 10)
    journal.run()
    journal.put(10, 20)
    while not journal.step():
        assert journal.clock.monotonic() < 1000 + 20
    assert journal.clock.monotonic() >= 1000 + 10
    assert journal.stream.report() == json.loads(journal.offsets[-1])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"startingTimestamp": "2026-11-25T00:00:00Z"}, "startingTimestamp"),
        ({"maxRecordsPerTrigger": 5}, "maxRecordsPerTrigger"),
        ({"includeMetadata": "true"}, "includeMetadata"),
    ],
)
def test_what_a_journal_has_not_is_refused(options: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=f"are read without {what}"):
        Journal(**options)


def test_the_checkpoint_of_another_stream_is_refused() -> None:
    journal = Journal()
    for written in (
        {"version": 1, "logs": {}},
        {"version": 1, "journal": -1},
        {"version": 1, "journal": True},
        {},
        None,
    ):
        with pytest.raises(ConfigError, match="choose another checkpointLocation"):
            journal.stream.latest(written, Budget(None, None))  # type: ignore[arg-type]
    with pytest.raises(UnknownVersionError):
        journal.stream.latest({"version": 2, "journal": 0}, Budget(None, None))
