"""The options of a batch read in Spark, as one checked value whose repr shows no secrets, and code for all options.

Spark passes option names in lower case, however the user wrote them, and every value as text.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.formats.log_format import MAX_SEQUENCE
from litelog.objects.position import Generation
from litelog.objects.position import generation as parse_generation
from litelog.spark.kafka_hints import kafka_hint, rename_options
from litelog.spark.log_bounds import LogBounds, split_by_log
from litelog.spark.store_options import NO_TABLE, read_store_options, replica_url
from litelog.units import StartKind, StartPoint, parse_size, parse_start

if TYPE_CHECKING:
    from collections.abc import Mapping


_SUFFIXES = {"k": 10, "m": 20, "g": 30, "t": 40}
_PLAIN_SIZE = re.compile(r"([0-9]{1,15})([kmgt]?)", re.IGNORECASE)


def format_options(options: Mapping[str, object] | None) -> dict[str, str]:
    """Every value as text; booleans as ``true`` and ``false``, mappings and lists as JSON."""
    return {name: _format(value) for name, value in (options or {}).items()}


def _format(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_size_option(name: str, text: str) -> int:
    """Parse a size in bytes: a plain number, a number with Spark's k, m, g or t, or a size with its unit."""
    plain = _PLAIN_SIZE.fullmatch(text.strip())
    try:
        size = int(plain[1]) << _SUFFIXES.get(plain[2].lower(), 0) if plain else parse_size(text)
    except ValueError as error:
        raise ConfigError(f"{name}={text!r} {error}") from None
    if size < 1:
        raise ConfigError(f"{name}={text!r} must be at least 1 byte")
    return size


MAX_PARTITION_BYTES = 512 << 20
"""The default for the most uncompressed bytes of the log in a partition. Compressed, this is about as much as Spark
reads of a file (``spark.sql.files.maxPartitionBytes``)."""

CORRUPT_COLUMN = "_corrupt_record"
MAX_PARTITIONS = 1_000_000

READ_OPTIONS: Final = (
    *("path", "paths", "generation", "startingSequence", "endingSequence", "startingTimestamp", "endingTimestamp"),
    *("mode", "columnNameOfCorruptRecord", "failOnDataLoss", "maxPartitionBytes", "numPartitions"),
    *("minPartitions", "timeZone", "includeMetadata", "includeHeaders", "recordSchema"),
    *("format", "pattern", "engine", "isolation"),
)
"""The options of a batch, as users write them. ``store_options`` has the options of stores."""

EARLIEST, LATEST = "earliest", "latest"

_NO_BOUND = {
    "startingSequence": EARLIEST,
    "startingTimestamp": EARLIEST,
    "endingSequence": LATEST,
    "endingTimestamp": LATEST,
}
"""The options that bound what is read, and the word that means no bound."""

_NO_BOUND_KINDS = {EARLIEST: StartKind.BEGINNING, LATEST: StartKind.END}
"""The meaning of other words for no bound: ``oldest`` and ``now``, for example."""

_USE_A_VIEW = f"{NO_TABLE}: CREATE TEMPORARY VIEW v USING litelog OPTIONS (path 'URL')"
_SPELLED = {name.lower(): name for name in READ_OPTIONS}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS = re.compile(r"[0-9]{12,13}")
_SHIFT = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::([0-5][0-9]))?")
_WILDCARDS = re.compile(r"[*?\[]")


class Mode(StrEnum):
    """How to treat bytes that fail a check."""

    FAILFAST = "FAILFAST"
    """Raise an error that names the object. The default, since a log with holes has lost data."""
    DROPMALFORMED = "DROPMALFORMED"
    """Leave them out. The worker's log counts and names them."""
    PERMISSIVE = "PERMISSIVE"
    """Return a row of nulls for each, with the reason in the column for malformed data."""


class Isolation(StrEnum):
    """Which records of transactions are rows."""

    READ_UNCOMMITTED = "read_uncommitted"
    """All."""
    READ_COMMITTED = "read_committed"
    """Those of committed transactions, up to the first open one. One task reads each log."""


class Engine(StrEnum):
    """The engine that reads sealed segments in a batch."""

    PYTHON = "python"
    JAVA = "java"


class RecordSchema(StrEnum):
    """Which columns the records have."""

    LOG = "log"
    """Those of every log, with the sequence."""
    KAFKA = "kafka"
    """Those of Spark's Kafka source, with topic, partition and offset. Only for logs of the format ``kafka``."""


@dataclass(frozen=True, slots=True)
class Range:
    """The records to read. None means no bound; times are microseconds since 1970."""

    first: int | None = None
    """First sequence to read."""
    stop: int | None = None
    """Sequence to stop before."""
    since: int | None = None
    """Earliest timestamp, or earliest time of shipping if the format has no timestamps."""
    until: int | None = None
    """Timestamp, or time of shipping, to stop before."""
    narrowed: bool = False
    """Whether a filter narrowed this range."""
    given: int | None = None
    """The value of ``first`` before a filter narrowed it."""

    @property
    def start(self) -> int | None:
        """The sequence at which the user asked to start, without filters.

        If that record is gone, that is an error. Records that a filter leaves out may be missing.
        """
        return self.given if self.narrowed else self.first

    def narrow(self, first: int | None, stop: int | None) -> Range:
        """This range, limited to the sequences that a filter may accept. The result may be empty."""
        firsts = [bound for bound in (self.first, first) if bound is not None]
        stops = [bound for bound in (self.stop, stop) if bound is not None]
        low, high = max(firsts, default=None), min(stops, default=None)
        if low is not None and high is not None:
            high = max(low, high)
        return replace(self, first=low, stop=high, narrowed=True, given=self.start)

    def overlaps(self, first: int | None, stop: int | None) -> bool:
        """Whether the range may include any of the sequences [first, stop). None: bound not known."""
        if self.first is not None and stop is not None and stop <= self.first:
            return False
        return self.stop is None or first is None or first < self.stop

    def overlaps_times(self, lowest: int | None, highest: int | None) -> bool:
        """Whether the range may include a record with a time in [lowest, highest]. None: bound not known."""
        if self.since is not None and highest is not None and highest < self.since:
            return False
        return self.until is None or lowest is None or lowest < self.until

    def within(self, own: Mapping[str, int | None]) -> Range:
        """This range, limited to the bounds of a single log, by option."""
        first, since = own.get("startingSequence"), own.get("startingTimestamp")
        stop, until = own.get("endingSequence"), own.get("endingTimestamp")
        asked = self.start if first is None else first
        limited = self.narrow(first, stop).within_times(Range(since=since, until=until))
        return replace(limited, narrowed=self.narrowed, given=asked if self.narrowed else None)

    def within_times(self, other: Range) -> Range:
        """This range, limited to the times that both include."""
        since = [time for time in (self.since, other.since) if time is not None]
        until = [time for time in (self.until, other.until) if time is not None]
        return replace(self, since=max(since, default=None), until=min(until, default=None))

    def holds(self, first: int | None, stop: int | None) -> bool:
        """Whether the range includes all of the sequences [first, stop). None: bound not known."""
        if self.first is not None and (first is None or first < self.first):
            return False
        return self.stop is None or (stop is not None and stop <= self.stop)

    def holds_times(self, lowest: int | None, highest: int | None) -> bool:
        """Whether the range includes all times in [lowest, highest]. None: bound not known."""
        if self.since is not None and (lowest is None or lowest < self.since):
            return False
        return self.until is None or (highest is not None and highest < self.until)

    @property
    def has_bounds(self) -> bool:
        """Whether the range limits sequences."""
        return self.first is not None or self.stop is not None

    @property
    def has_times(self) -> bool:
        """Whether the range limits times."""
        return self.since is not None or self.until is not None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a batch read. The repr leaves out URLs, which may hold a secret, and options of stores."""

    paths: tuple[str, ...] = field(repr=False)
    """URLs, paths, or patterns of either: replicas and folders of logs."""
    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the stores, as ``open_store`` takes them."""
    generation: Generation | None = None
    """None: the latest generation."""
    range: Range = field(default_factory=Range)
    """For all logs."""
    by_log: LogBounds = field(default_factory=LogBounds)
    """Further bounds, for single logs."""
    mode: Mode = Mode.FAILFAST
    corrupt_column: str = CORRUPT_COLUMN
    fail_on_data_loss: bool = True
    max_partition_bytes: int = MAX_PARTITION_BYTES
    """Uncompressed bytes of the log."""
    num_partitions: int | None = None
    min_partitions: int = 1
    """Fewest tasks, if there is enough to divide."""
    include_metadata: bool = False
    include_headers: bool = False
    """Whether Kafka's schema has the records' headers."""
    record_schema: RecordSchema | None = None
    """None: Kafka's if all logs have the format ``kafka``, otherwise the log's."""
    format: str | None = None
    """Format of a log in a local folder; a replica names its own. None: ``litelog``."""
    pattern: str | None = None
    """Names of the log segments, if the format requires a pattern."""
    engine: Engine | None = None
    """None: Java if the session has the columnar reader."""
    committed: bool = False
    """Whether only the records of committed transactions are rows."""

    @property
    def has_several(self) -> bool:
        """Whether there may be more than one log, so that each row must name its log."""
        return len(self.paths) > 1 or any(is_pattern(path) for path in self.paths)


def is_pattern(path: str) -> bool:
    """Whether ``path`` contains wildcards (``*``, ``?``, ``[...]``). In a URL only the part before the query counts."""
    head = path.partition("?")[0] if "://" in path else path
    return _WILDCARDS.search(head) is not None


def parse_options(given: Mapping[str, str], own: Mapping[str, str] | None = None) -> ReadOptions:
    """Parse and check the options of a batch.

    ``own``: further options that the caller reads itself, as a mapping from lower case to the documented spelling.
    Raises ConfigError for an invalid option, and for an unknown one, with the nearest known name.
    """
    store, others = read_store_options(rename_options(given))
    known = _SPELLED | dict(own or {})
    if "provider" in others:
        raise ConfigError(_USE_A_VIEW)
    for name in others:
        if name not in known:
            raise ConfigError(_unknown(name, [*known.values()]))
    paths = _paths(others)
    bounds, by_log = _bounds(others)
    read = ReadOptions(
        paths=paths,
        store=store,
        generation=_generation(others.get("generation")),
        range=bounds,
        by_log=by_log,
        mode=_mode(others.get("mode", Mode.FAILFAST)),
        corrupt_column=_name("columnNameOfCorruptRecord", others.get("columnnameofcorruptrecord", CORRUPT_COLUMN)),
        fail_on_data_loss=_switch("failOnDataLoss", others.get("failondataloss", "true")),
        max_partition_bytes=parse_size_option(
            "maxPartitionBytes", others.get("maxpartitionbytes", str(MAX_PARTITION_BYTES))
        ),
        num_partitions=parse_count("numPartitions", others.get("numpartitions"), MAX_PARTITIONS),
        min_partitions=parse_count("minPartitions", others.get("minpartitions"), MAX_PARTITIONS) or 1,
        include_metadata=_switch("includeMetadata", others.get("includemetadata", "false")),
        include_headers=_switch("includeHeaders", others.get("includeheaders", "false")),
        record_schema=_record_schema(others.get("recordschema")),
        format=others.get("format"),
        pattern=others.get("pattern"),
        engine=parse_engine(others.get("engine")),
        committed=_isolation(others.get("isolation")) is Isolation.READ_COMMITTED,
    )
    _require_whole(read)
    return read


def require_uncommitted(options: ReadOptions, reader: str) -> None:
    """Raise ConfigError if the options ask for committed transactions alone, which ``reader`` cannot select."""
    if options.committed:
        raise ConfigError(
            f"isolation=read_committed is for reading a log in a batch or a stream: {reader} takes all records"
        )


def _require_whole(options: ReadOptions) -> None:
    """Raise ConfigError for options that do not work with isolation=read_committed.

    Data that a mode leaves out may hold the end of a transaction, and a row's place in a log segment is not known.
    """
    misfits = {
        f"mode={options.mode}": options.mode is not Mode.FAILFAST,
        "failOnDataLoss=false": not options.fail_on_data_loss,
        "includeMetadata=true": options.include_metadata,
        "engine=java": options.engine is Engine.JAVA,
    }
    unfit = next((name for name, given in misfits.items() if given), None)
    if options.committed and unfit is not None:
        raise ConfigError(f"isolation=read_committed does not work with {unfit}: leave one of them out")


def _isolation(name: str | None) -> Isolation:
    try:
        return Isolation.READ_UNCOMMITTED if name is None else Isolation(name)
    except ValueError:
        raise ConfigError(f"isolation={name!r} must be {' or '.join(Isolation)}") from None


def parse_engine(name: str | None) -> Engine | None:
    """The engine of this name; None: litelog chooses. Raises ConfigError for an unknown name."""
    try:
        return None if name is None else Engine(name)
    except ValueError:
        raise ConfigError(f"engine={name!r} must be {' or '.join(Engine)}") from None


def _record_schema(name: str | None) -> RecordSchema | None:
    try:
        return None if name is None else RecordSchema(name)
    except ValueError:
        raise ConfigError(f"recordSchema={name!r} must be {' or '.join(RecordSchema)}") from None


def parse_time(name: str, text: str, zone: tzinfo = UTC) -> int:
    """Convert a time to microseconds since 1970: an ISO time, milliseconds since 1970, or a duration back from now
    (``2month3days``). Raises ConfigError.

    ``zone``: the zone of an ISO time without one.
    """
    text = text.strip()
    if _MILLISECONDS.fullmatch(text):
        return int(text) * 1000
    if text.isdigit():
        raise ConfigError(
            f"{name}={text!r} must be milliseconds since 1970, with 12 or 13 digits, or an ISO time, such as "
            "2026-11-21T10:00:00Z"
        )
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        if (point := _written(text)) is not None and point.kind is StartKind.TIME:
            return point.value
        said = "is not an ISO time, such as 2026-11-21T10:00:00Z, or a duration back from now, such as 1day"
        raise ConfigError(f"{name}={text!r} {said}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _written(text: str) -> StartPoint | None:
    """A place as people write it; None if the text is none."""
    try:
        return parse_start(text, datetime.now(UTC))
    except ValueError:
        return None


def _zone(text: str | None) -> tzinfo:
    """A zone by its name, or by its difference from UTC, as Spark writes either."""
    if text is None:
        return UTC
    try:
        if shifted := _SHIFT.fullmatch(text):
            hours, minutes = int(shifted[2]), int(shifted[3] or 0)
            shift = timedelta(hours=hours, minutes=minutes)
            return timezone(-shift if shifted[1] == "-" else shift)
        return ZoneInfo(text)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ConfigError(f"timeZone={text!r} is not a time zone, such as Europe/Berlin or +01:00") from None


def _unknown(name: str, known: list[str]) -> str:
    if (hint := kafka_hint(name)) is not None:
        return f"litelog has no option {name!r}, which is Kafka's: {hint}"
    spelled = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name, spelled, 1, 0.5)
    advice = f"; did you mean {spelled[near[0]]}?" if near else ""
    listed = ", ".join(sorted(known, key=str.lower))
    return f"litelog has no option {name!r}{advice} (it has {listed}, and s3.*, store.* and fs.s3a.* for stores)"


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """The paths in the options. Raises ConfigError if there are none."""
    found: list[str] = []
    if "paths" in options:
        try:
            listed = json.loads(options["paths"])
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            raise ConfigError('paths must be a JSON list of texts, such as ["s3://bucket/a", "s3://bucket/b"]')
        found += listed
    if "path" in options:
        found.append(options["path"])
    if not found or not all(path.strip() for path in found):
        raise ConfigError(
            f"no log is given: use load(URL) or option path, with a replica's URL or a log's folder ({_USE_A_VIEW})"
        )
    return tuple(dict.fromkeys(replica_url(path) for path in found))


def _bounds(options: Mapping[str, str]) -> tuple[Range, LogBounds]:
    """The bounds for all logs, and those for single logs."""
    zone = _zone(options.get("timezone"))
    shared: dict[str, int | None] = {}
    by_log: dict[str, dict[str, int | None]] = {}
    for name, word in _NO_BOUND.items():
        text = options.get(name.lower())
        if text is None:
            continue
        parse = partial(_bound, word=word, zone=zone)
        texts = split_by_log(name, text)
        if texts is None:
            shared[name] = parse(name, text)
        else:
            by_log[name] = {log: parse(name, text, f" of {log!r}") for log, text in texts.items()}
    _require_order(shared)
    for log in {log for bounds in by_log.values() for log in bounds}:
        own = {name: bounds[log] for name, bounds in by_log.items() if log in bounds}
        _require_order(shared | own, f" of {log!r}")
    return Range().within(shared), LogBounds(by_log)


def _require_order(bounds: Mapping[str, int | None], whose: str = "") -> None:
    first, stop = bounds.get("startingSequence"), bounds.get("endingSequence")
    if first is not None and stop is not None and stop < first:
        raise ConfigError(f"endingSequence={stop}{whose} lies before startingSequence={first}")
    since, until = bounds.get("startingTimestamp"), bounds.get("endingTimestamp")
    if since is not None and until is not None and until < since:
        raise ConfigError(f"endingTimestamp{whose} lies before startingTimestamp")


def _bound(name: str, text: str, whose: str = "", *, word: str, zone: tzinfo) -> int | None:
    """The sequence or time in an option; None if it is the ``word`` for no bound. ``whose``: for messages."""
    point = _written(text)
    if text.strip().lower() == word or (point is not None and point.kind is _NO_BOUND_KINDS[word]):
        return None
    if name.endswith("Timestamp"):
        return parse_time(f"{name}{whose}", text, zone)
    return parse_count(f"{name}{whose}", text, MAX_SEQUENCE, lowest=0)


def _generation(text: str | None) -> Generation | None:
    if text is None or text.lower() == "latest":
        return None
    try:
        return parse_generation(text)
    except ValueError as error:
        raise ConfigError(f"generation: {error}") from None


def _mode(text: str) -> Mode:
    try:
        return Mode(text.upper())
    except ValueError:
        raise ConfigError(f"mode={text!r} must be one of {', '.join(Mode)}") from None


def _name(option: str, text: str) -> str:
    if not text.strip():
        raise ConfigError(f"{option} is empty")
    return text


def _switch(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name}={text!r} must be true or false")
    return text.lower() == "true"


def parse_count(name: str, text: str | None, limit: int, *, lowest: int = 1) -> int | None:
    """Parse the number in ``text``; None stays None. Raises ConfigError, naming the option, if it is out of range."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and lowest <= int(text) <= limit):
        raise ConfigError(f"{name}={text!r} must be a number from {lowest} to {limit}")
    return int(text)
