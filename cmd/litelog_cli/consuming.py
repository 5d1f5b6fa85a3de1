"""Consumers of a log or a replica that the command line names: what ``cat --consumer`` and ``consumers`` share."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, LitelogError, OffsetJumpError
from litelog_cli.arguments import is_replica
from litelog_cli.config_file import choose_state_dir
from litelog_cli.configured import ConfiguredReplica, find_log, find_replica
from litelog_cli.inputs import choose_format, reader_bounds, report_gaps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack

    from litelog.consumers.consumed_log import ConsumedLog
    from litelog.consumers.consumer import Consumer
    from litelog.formats.columns import Columns
    from litelog.units import StartPoint

MOST_DIGITS = 20
"""The most digits of a sequence."""


class ConsumedPlace:
    """A log's folder or a replica, with its settings from the options and the configuration."""

    def __init__(
        self,
        place: str,
        config_file: str | None,
        format_name: str | None,
        pattern: str | None,
        state_dir: str | None,
        others: Sequence[str] = (),
    ) -> None:
        """``others``: further places of the log, which are replicas.

        Raises UsageError and ConfigError as ``find_log`` and ``find_replica``.
        """
        more = [find_replica(other, config_file) for other in others]
        self.place = place
        self.folder: str | None = None
        self.replicas: Sequence[ConfiguredReplica] = ()
        self.format: str | None = None
        self.state_dir: str | None
        if is_replica(place):
            if format_name is not None:
                raise ConfigError("a replica knows its format; --format is for logs")
            self.replicas, self.pattern = [find_replica(place, config_file), *more], pattern
            self.state_dir = state_dir
            return
        log, config_state = find_log(place, config_file)
        self.folder = place
        own = () if log is None else log.replicas
        self.replicas = [*more, *(ConfiguredReplica(each.url, each.options) for each in own)]
        self.format, self.pattern = choose_format(log, format_name, pattern)
        self.state_dir = state_dir or config_state or choose_state_dir(None, None)

    def open_log(self) -> ConsumedLog:
        """The log, to look at its consumers."""
        from litelog.consumers.consumed_log import open_consumed_log

        addresses = [(replica.url, replica.options) for replica in self.replicas]
        return open_consumed_log(self.folder, addresses, self.format, self.pattern, self.state_dir)

    def open_consumer(self, name: str, start: StartPoint, *, follow: bool) -> Consumer:
        """The consumer of that name. ``start``: where a new one begins."""
        from litelog.consumers.consumer import Consumer

        log = self.replicas[0] if self.folder is None else self.folder
        return Consumer(
            log,
            name,
            replicas=self.replicas[1:] if self.folder is None else self.replicas,
            log_format=self.format,
            pattern=self.pattern,
            follow=follow,
            state_dir=self.state_dir,
            **reader_bounds(start, None),
        )

    def open_batches(
        self, stack: ExitStack, start: StartPoint, end: StartPoint | None, *, follow: bool
    ) -> Iterator[Columns]:
        """The records from all places of the log, as one. ``stack`` closes what this opens."""
        from litelog.log.read_bounds import ReadBounds
        from litelog.reading.combined_reader import folder_source
        from litelog.reading.several_places import SeveralPlaces, replica_sources

        given = reader_bounds(start, end)
        bounds = ReadBounds(**given)
        addresses = [(replica.url, replica.options) for replica in self.replicas]
        if self.folder is None:
            sources = replica_sources(addresses, self.pattern, bounds.start_time)
        else:
            log, replicas = self.open_log(), replica_sources(addresses, self.pattern)
            if bounds.start_time is not None:
                bounds = replace(bounds, start=log.find_time(bounds.start_time) or 0, start_time=None)
            sources = [folder_source(self.folder, log.format, self.state_dir), *replicas]
        reader = stack.enter_context(SeveralPlaces(sources, bounds, follow=follow))
        return report_gaps(reader.read, OffsetJumpError, "records-gone")


def consumed_batches(stack: ExitStack, consumer: Consumer, *, manual: bool, follow: bool) -> Iterator[Columns]:
    """Yield the records of a consumer, and report records that are gone everywhere.

    The consumer commits records when the caller takes the next ones; with ``manual``, when standard input acknowledges
    them. ``stack`` closes the consumer.
    """
    stack.enter_context(consumer)
    _ = consumer.position  # opens the log, before another thread commits
    acknowledgements = _Acknowledgements(consumer, ends=follow) if manual else None
    for columns in report_gaps(consumer.read, OffsetJumpError, "records-gone"):
        yield columns
        if not manual:
            consumer.commit()
    if acknowledgements is not None:
        acknowledgements.finish()


class _Acknowledgements:
    """Commits what standard input acknowledges: a line names the sequence of a record that is processed, with all
    records before it. ``ends``: the end of standard input ends the consumer."""

    def __init__(self, consumer: Consumer, *, ends: bool) -> None:
        self._consumer = consumer
        self._ends = ends
        self._error: LitelogError | None = None
        self._thread = threading.Thread(target=self._run, name="acknowledge", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the end of standard input, and raise the error that ended the commits, if any."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for line in sys.stdin.buffer:
                text = line.strip()
                if not text.isdigit() or len(text) > MOST_DIGITS:
                    shown = text[:MOST_DIGITS].decode(errors="replace")
                    raise ConfigError(f"standard input acknowledges sequences, one a line, not {shown!r}")
                self._consumer.commit(int(text) + 1)
        except LitelogError as error:
            self._error = error
        except ValueError as error:
            self._error = ConfigError(f"standard input acknowledges too much: {error}")
        finally:
            if self._error is not None or self._ends:
                self._consumer.close()
