"""Options of jobs: a job accepts an option or refuses it, and never ignores one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import ConfigError
from litelog.spark.options import Mode, format_options
from litelog.spark.store_options import read_store_options
from litelog.stores.registry import scheme_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.spark.options import ReadOptions


def store_options(given: Mapping[str, object] | None, whose: str) -> dict[str, str]:
    """Return a store's options, in the form for ``open_store``. Raises ConfigError for any other option."""
    found, others = read_store_options(format_options(given))
    for name in others:
        raise ConfigError(
            f"{whose} has no option {name!r}: it takes options of the store, as s3.NAME, store.NAME or fs.s3a.NAME"
            f" (such as store.{name}, if that exists)"
        )
    return found


def options_of_target(target: str, given: Mapping[str, object] | None, replica: Mapping[str, str]) -> Mapping[str, str]:
    """The options of a target's store: its own, or else those of the replica that apply to it."""
    if given is not None:
        return store_options(given, "the target")
    return {} if scheme_of(target) in ("file", "memory") else replica


def require_unbounded(reading: ReadOptions, reason: str, *, but: str = "") -> None:
    """Raise ConfigError, with ``reason``, for the first bound of a read that is set, except the one named ``but``."""
    for name in reading.by_log.values:
        raise ConfigError(f"{name}: {reason if name != but else 'this job reads one log: give a number'}")
    bounds = reading.range
    named = {
        "startingSequence": bounds.first,
        "endingSequence": bounds.stop,
        "startingTimestamp": bounds.since,
        "endingTimestamp": bounds.until,
    }
    for name, value in named.items():
        if value is not None and name != but:
            raise ConfigError(f"{name}: {reason}")


def require_records(mode: Mode) -> None:
    """Raise ConfigError for mode PERMISSIVE, which also yields rows that are not records."""
    if mode is Mode.PERMISSIVE:
        raise ConfigError(
            "mode=PERMISSIVE returns rows for malformed data, and a job needs records: DROPMALFORMED leaves it out"
        )
