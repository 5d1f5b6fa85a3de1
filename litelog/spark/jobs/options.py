"""What jobs take of options, and what they refuse: none is dropped without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import ConfigError
from litelog.spark.options import Mode
from litelog.spark.spelling import spell_options
from litelog.spark.store_options import read_store_options
from litelog.stores.registry import scheme_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.spark.options import Range


def store_options(given: Mapping[str, object] | None, whose: str) -> dict[str, str]:
    """The options of a store, as ``open_store`` takes them. ConfigError for one that is none of a store."""
    found, others = read_store_options(spell_options(given))
    for name in others:
        raise ConfigError(
            f"{whose} has no option {name!r}: it takes those of the store, as s3.NAME, store.NAME or fs.s3a.NAME"
            f" (such as store.{name}, if it is one)"
        )
    return found


def options_of_target(target: str, given: Mapping[str, object] | None, replica: Mapping[str, str]) -> Mapping[str, str]:
    """The options of a target's store: those that are given for it, or else the replica's, as far as it takes any."""
    if given is not None:
        return store_options(given, "the target")
    return {} if scheme_of(target) in ("file", "memory") else replica


def require_unbounded(bounds: Range, reason: str, *, but: str = "") -> None:
    """ConfigError, with ``reason``, for the first bound of a read that is set, unless its name is ``but``."""
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
    """ConfigError for the mode that gives rows which are no records."""
    if mode is Mode.PERMISSIVE:
        raise ConfigError(
            "mode=PERMISSIVE gives a row for what is malformed, and a job takes records: DROPMALFORMED leaves it out"
        )
