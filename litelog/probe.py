"""The probe: whether a store does what replication needs, step by step, with an object of its own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from litelog.errors import ExistsError, LitelogError, NotFoundError
from litelog.object_store import ByteRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from litelog.clock import Clock
    from litelog.object_store import ObjectStore

BODY = bytes(range(256)) * 16
"""What the probe writes: enough that a range of it is a real one."""

RANGE = ByteRange(1000, 100)


class Outcome(StrEnum):
    """How a step ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """A step that it needs failed before."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one step found."""

    name: str
    outcome: Outcome
    seconds: float
    required: bool
    """Whether replication cannot do without it."""
    reason: str = ""
    """Why it failed."""
    meaning: str = ""
    """What that means for who replicates there."""


class _WrongAnswerError(Exception):
    """The store answered, and not what was stored."""


def run_probe(store: ObjectStore, clock: Clock, random: Random) -> Iterator[Step]:
    """Try every operation that replication uses on a new key, each step as it is done. The object is deleted last."""
    probe = _Probe(store, f"probe-{random.getrandbits(64):016x}/object")
    failed: set[str] = set()
    for name, needs, required, meaning, act in probe.steps():
        if needs & failed:
            failed.add(name)
            yield Step(name, Outcome.SKIPPED, 0.0, required)
            continue
        started = clock.monotonic()
        try:
            act()
        except (LitelogError, OSError, _WrongAnswerError) as error:
            failed.add(name)
            yield Step(name, Outcome.FAILED, clock.monotonic() - started, required, str(error), meaning)
        else:
            yield Step(name, Outcome.PASSED, clock.monotonic() - started, required)


class _Probe:
    """The steps, over one key."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self._key = key

    def steps(self) -> list[tuple[str, set[str], bool, str, Callable[[], None]]]:
        """Name, steps that must have passed, whether it is required, what its failure means, and the step itself."""
        put = {"put"}
        return [
            ("put", set(), True, "nothing can be replicated there", self._put),
            ("get and compare", put, True, "nothing can be restored from there", self._get),
            ("ranged read", put, True, "plans and searches cannot read headers", self._get_range),
            ("list", put, True, "restore cannot find what is there", self._list),
            (
                "create-only put refused",
                put,
                True,
                "the store cannot keep two writers apart; such a replica is refused",
                self._put_again,
            ),
            ("delete", put, False, "retention cannot free anything; the probe's object stays", self._delete),
        ]

    def _put(self) -> None:
        self._store.put(self._key, [BODY])

    def _get(self) -> None:
        with self._store.open(self._key) as stream:
            _require(stream.read(len(BODY) + 1) == BODY, "other bytes came back than were put")

    def _get_range(self) -> None:
        assert RANGE.length is not None
        with self._store.open(self._key, RANGE) as stream:
            expected = BODY[RANGE.start : RANGE.start + RANGE.length]
            _require(stream.read(len(BODY) + 1) == expected, "other bytes came back than lie in the range")

    def _list(self) -> None:
        prefix = self._key.partition("/")[0] + "/"
        found = [(info.key, info.size) for info in self._store.list(prefix)]
        _require(found == [(self._key, len(BODY))], f"the listing shows {found}")

    def _put_again(self) -> None:
        try:
            self._store.put(self._key, [b"another writer's"])
        except ExistsError:
            return
        raise _WrongAnswerError("a second put of the same key was accepted")

    def _delete(self) -> None:
        self._store.delete([self._key])
        try:
            self._store.open(self._key).close()
        except NotFoundError:
            return
        raise _WrongAnswerError("the object is still there after it was deleted")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _WrongAnswerError(otherwise)
