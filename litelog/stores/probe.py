"""The probe: checks step by step whether a store does what replication needs, with its own objects."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import ExistsError, LitelogError, NotFoundError
from litelog.objects.layout import Fencing, trial_prefix
from litelog.stores.object_store import ByteRange, NotSupportedError, PartsAndPages
from litelog.stores.trial import CANNOT_LIST, LISTED, RACERS, TrialError, in_parts, race_keys, try_listing, try_race

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from litelog.stores.object_store import ObjectStore
    from litelog.system.clock import Clock

BODY = bytes(range(256)) * 16
"""The probe's object."""

RANGE_START, RANGE_BYTES = 1000, 100
"""The range of it that is read."""

CREATE_ONLY = "create-only put refused"
RACE = f"one of {RACERS} puts at once wins"
RACE_IN_PARTS = "the same, in parts"
FENCING_STEPS = frozenset({CREATE_ONLY, RACE, RACE_IN_PARTS})
"""The steps that show which fencing a store is good for."""

LONG_LISTING = f"list {LISTED:,} objects"

_ISOLATED_ONLY = (
    "the store cannot keep two daemons apart: with fencing: required (the default) such a replica is refused; "
    "fencing: isolated accepts it, and gives up that only one daemon writes at a time"
)
_NO_PARTS = "harmless: each object is uploaded in one request"
_NOT_LISTED = "it is unknown whether the store lists them all"


class StepOutcome(StrEnum):
    """How a step ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_OFFERED = "not offered"
    """The store, or its client, has no such feature, and nothing needs it; so it is not ``required``."""
    SKIPPED = "skipped"
    """A step that this one needs failed before."""


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """The result of one step."""

    name: str
    outcome: StepOutcome
    seconds: float
    required: bool
    """Whether replication needs it."""
    reason: str = ""
    """Why it did not pass; empty if it did."""
    meaning: str = ""
    """The meaning of the failure for a replica there."""

    def as_json(self) -> dict[str, object]:
        """The result as JSON values, for programs."""
        return {
            "step": self.name,
            "outcome": self.outcome,
            "seconds": self.seconds,
            "required": self.required,
            "reason": self.reason,
            "meaning": self.meaning,
        }


class _WrongAnswerError(Exception):
    """The store answered, but not with what was stored."""


def run_probe(
    store: ObjectStore,
    clock: Clock,
    random: Random,
    fencing: Fencing = Fencing.REQUIRED,
    listed: int = LISTED,
) -> Iterator[ProbeStep]:
    """Try every operation that replication uses, on new keys, and yield each step when it is done. Objects are deleted.

    Args:
        store: The store, without wrappers that retry.
        clock: Measures how long each step takes.
        random: Chooses the prefix of the probe's keys.
        fencing: As configured for the replica, now or later. Isolated fencing works without create-only puts.
        listed: Objects in a long listing; 0 for a store without pages, such as a folder.
    """
    probe = _Probe(store, trial_prefix(random.getrandbits(64)), fencing, listed)
    failed: set[str] = set()
    for name, needs, required, meaning, act in probe.steps():
        if needs & failed:
            failed.add(name)
            yield ProbeStep(name, StepOutcome.SKIPPED, 0.0, required)
            continue
        started = clock.monotonic()
        try:
            act()
        except _NotThereError as error:
            yield ProbeStep(
                name, StepOutcome.NOT_OFFERED, clock.monotonic() - started, False, error.reason, error.meaning
            )
        except (LitelogError, OSError, TrialError, _WrongAnswerError) as error:
            failed.add(name)
            yield ProbeStep(name, StepOutcome.FAILED, clock.monotonic() - started, required, str(error), meaning)
        else:
            yield ProbeStep(name, StepOutcome.PASSED, clock.monotonic() - started, required)


class _NotThereError(Exception):
    """The store or its client does not have the feature, which is not a failure."""

    def __init__(self, reason: str, meaning: str) -> None:
        self.reason = reason
        self.meaning = meaning
        super().__init__(reason)


class _Probe:
    """The steps, over keys that begin with ``prefix``."""

    def __init__(self, store: ObjectStore, prefix: str, fencing: Fencing, listed: int) -> None:
        self._store = store
        self._prefix = prefix
        self._key = f"{prefix}object"
        self._fencing = fencing
        self._listed = listed
        self._deletes = False
        self._not_supported: NotSupportedError | None = None

    def steps(self) -> list[tuple[str, set[str], bool, str, Callable[[], None]]]:
        """Name, steps that must have passed, whether it is required, what its failure means, and the step itself."""
        put = {"put"}
        fencing = self._fencing is Fencing.REQUIRED
        steps: list[tuple[str, set[str], bool, str, Callable[[], None]]] = [
            ("put", set(), True, "nothing can be replicated there", self._put),
            ("get and compare", put, True, "nothing can be restored from there", self._get),
            ("list", put, True, "restore cannot find what is there", self._list),
            (CREATE_ONLY, put, fencing, _ISOLATED_ONLY, self._put_again),
            (RACE, {CREATE_ONLY}, fencing, _ISOLATED_ONLY, self._race),
            (RACE_IN_PARTS, {RACE}, fencing, _ISOLATED_ONLY, self._race_in_parts),
            ("ranged read", put, True, "plans and searches cannot read headers", self._get_range),
            ("delete", put, False, "retention cannot free anything; what was put for this stays", self._delete),
            (LONG_LISTING, put, True, CANNOT_LIST, self._list_long),
        ]
        return steps if self._listed else steps[:-1]

    def _put(self) -> None:
        try:
            self._store.put(self._key, [BODY])
        except NotSupportedError as error:
            self._not_supported = error
            self._store.put(self._key, [BODY], create_only=False)

    def _get(self) -> None:
        with self._store.open(self._key) as stream:
            _require(stream.read(len(BODY) + 1) == BODY, "the bytes read are not the bytes put")

    def _get_range(self) -> None:
        with self._store.open(self._key, ByteRange(RANGE_START, RANGE_BYTES)) as stream:
            expected = BODY[RANGE_START : RANGE_START + RANGE_BYTES]
            _require(stream.read(len(BODY) + 1) == expected, "the bytes read are not those of the range")

    def _list(self) -> None:
        found = [(info.key, info.size) for info in self._store.list(self._prefix)]
        _require(found == [(self._key, len(BODY))], f"the listing shows {found}")

    def _put_again(self) -> None:
        if self._not_supported is not None:
            raise self._not_supported
        try:
            self._store.put(self._key, [BODY])  # as a claim: the same bytes once more
        except ExistsError:
            _require(
                self._store.enforces_create_only,
                "the client checks that the key is free, and then writes: two clients may do so at once",
            )
            return
        raise _WrongAnswerError("a second put of the same key was accepted")

    def _race(self) -> None:
        try_race(self._store, race_keys(f"{self._prefix}race-"))

    def _race_in_parts(self) -> None:
        if not isinstance(self._store, PartsAndPages):
            raise _NotThereError("this client has no uploads in parts", _NO_PARTS)
        try_race(self._store, race_keys(f"{self._prefix}parts-"), in_parts(self._store))

    def _list_long(self) -> None:
        if not self._deletes:
            raise _NotThereError(f"not tried, as {self._listed:,} objects would stay", _NOT_LISTED)
        try_listing(self._store, f"{self._prefix}listed-", self._listed)

    def _delete(self) -> None:
        self._store.delete([self._key])
        self._require_gone(self._key)
        self._deletes = True

    def _require_gone(self, key: str) -> None:
        try:
            self._store.open(key).close()
        except NotFoundError:
            return
        raise _WrongAnswerError("the object is still there after it was deleted")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _WrongAnswerError(otherwise)
