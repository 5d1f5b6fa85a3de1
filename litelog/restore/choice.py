"""Which of a log's replicas is restored: the one that reaches furthest. The others stand by for what it lost.

Each replica has generations, indexes and WAL segments of its own; what they share is the log: file names, offsets and
bytes. Where they hold different histories, no clock says which one is true. The later one is known where its replica
holds the other history, too, as a generation that it has left; else a person chooses.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.errors import (
    ConfigError,
    CorruptionError,
    LitelogError,
    NothingToRestoreError,
    OtherLogError,
    StoreError,
)
from litelog.restore.agreement import Verdict, agreed_place
from litelog.restore.donors import Donors, readable_claims, same_log
from litelog.restore.history import History, Place
from litelog.restore.plan import find_generation, plan_generation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.claim import Claim
    from litelog.formats import LogFormat
    from litelog.replica_client import ReplicaClient
    from litelog.restore.plan import RestorePlan, Target

PARALLELISM = 16
"""Replicas that are looked at side by side, so that one which is down costs its time-out once."""


class DivergedReplicasError(LitelogError):
    """Two replicas hold different histories of one log, and neither knows the other's."""

    def __init__(self, one: str, one_end: str, two: str, two_end: str) -> None:
        self.replicas = (one, two)
        super().__init__(
            f"{one} (up to {one_end}) and {two} (up to {two_end}) hold histories of one log that have diverged; "
            "give only the replica to restore from, or its --generation"
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """What to restore, and from where."""

    client: ReplicaClient
    plan: RestorePlan
    log_format: LogFormat
    donors: Donors | None
    """None where there is no other replica that could help."""
    passed_over: tuple[tuple[str, str], ...]
    """Replicas that could not be chosen: the URL, and why."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    client: ReplicaClient
    plan: RestorePlan
    history: History
    whole: bool
    """Whether its plan needed no other replica."""

    @property
    def end(self) -> Place:
        file = self.plan.files[-1]
        return Place(self._order(file.name), file.name, file.size)

    def rank(self) -> tuple[object, ...]:
        """Greater is better: further, then from an earlier beginning on (see ``_choose_best``), then undamaged."""
        return (self.end.order, self.end.offset, self.whole)

    @property
    def beginning(self) -> tuple[object, ...]:
        return self._order(self.plan.files[0].name)

    def _order(self, name: str) -> tuple[object, ...]:
        return self.history.format.segment_order(name) or ()


def choose(clients: Sequence[ReplicaClient], target: Target, open_format: Callable[[str], LogFormat]) -> Choice:
    """The plan for ``target`` from the replica that reaches furthest. ``open_format``: a format by its name.

    A replica that is down, damaged, empty or another log's is passed over while there is another one; if none is left,
    its error is raised. DivergedReplicasError; ConfigError for a bound that means different places in different ones.
    """
    return _Chooser(clients, target, open_format).choose()


class _Chooser:
    def __init__(
        self, clients: Sequence[ReplicaClient], target: Target, open_format: Callable[[str], LogFormat]
    ) -> None:
        self._clients = clients
        self._target = target
        self._open_format = open_format
        self._errors: dict[int, tuple[str, LitelogError]] = {}
        """Why a client's replica is not chosen, by the client's identity: two may have one URL."""
        self._helpers = list(clients)
        """Those that may help out."""

    def choose(self) -> Choice:
        claims = self._find_claims()
        log_format = self._open_format(claims[0][1].format)
        claims = self._same_logs(claims, log_format)
        candidates = self._plan_all(claims, log_format)
        self._check_bound(candidates, log_format)
        best = self._choose_best(candidates)
        donors = self._donors(best.client, best.history)
        passed_over = tuple((url, str(error)) for url, error in self._errors.values())
        return Choice(best.client, best.plan, log_format, donors, passed_over)

    def _find_claims(self) -> list[tuple[ReplicaClient, Claim]]:
        with ThreadPoolExecutor(min(PARALLELISM, len(self._clients)), "look") as pool:
            found = list(pool.map(self._find_claim, self._clients))
        claims = []
        for client, claim in zip(self._clients, found, strict=True):
            if isinstance(claim, LitelogError):
                self._pass_over(client, claim)
            else:
                claims.append((client, claim))
        if not claims:
            raise self._worst_error()
        return claims

    def _find_claim(self, client: ReplicaClient) -> Claim | LitelogError:
        try:
            return find_generation(client, self._target)
        except LitelogError as error:
            return error

    def _pass_over(self, client: ReplicaClient, error: LitelogError) -> None:
        """Remember why a replica is not chosen. One that is damaged, or shorter, may still help out."""
        named = isinstance(error, NothingToRestoreError) and self._target.generation is not None
        if not named or len(self._clients) == 1:  # each replica has generations of its own
            self._errors[id(client)] = (client.url, error)
        if isinstance(error, (StoreError, OtherLogError)) and client in self._helpers:
            self._helpers.remove(client)

    def _worst_error(self) -> LitelogError:
        """What to raise where no replica is left."""
        others = [error for _, error in self._errors.values() if not isinstance(error, NothingToRestoreError)]
        if len(self._errors) == 1:
            return next(error for _, error in self._errors.values())
        described = (describe(url, error) for url, error in self._errors.values())
        reasons = "\n  ".join(["no replica can be restored:", *described])
        if not others:
            return NothingToRestoreError(reasons if self._errors else f"no replica holds {self._target.generation}")
        return _JoinedError(reasons, next((error for error in others if isinstance(error, CorruptionError)), others[0]))

    def _same_logs(
        self, claims: list[tuple[ReplicaClient, Claim]], log_format: LogFormat
    ) -> list[tuple[ReplicaClient, Claim]]:
        first = claims[0][1]
        kept = []
        for client, claim in claims:
            if same_log(claim, first, log_format):
                kept.append((client, claim))
            else:
                self._pass_over(client, _other_log(client, claim, first))
        return kept

    def _plan_all(self, claims: list[tuple[ReplicaClient, Claim]], log_format: LogFormat) -> list[_Candidate]:
        candidates = []
        for client, claim in claims:
            try:
                candidates.append(self._plan(client, claim, log_format))
            except LitelogError as error:
                self._pass_over(client, error)
        if not candidates:
            raise self._worst_error()
        return candidates

    def _plan(self, client: ReplicaClient, claim: Claim, log_format: LogFormat) -> _Candidate:
        whole = True
        try:
            plan = plan_generation(client, claim, self._target, log_format)
        except CorruptionError:
            donors = self._donors(client, History(client, claim, log_format))
            if donors is None:
                raise
            plan = plan_generation(client, claim, self._target, log_format, donors)
            whole = False
        return _Candidate(client, plan, History(client, claim, log_format, plan.pieces), whole)

    def _donors(self, client: ReplicaClient, history: History) -> Donors | None:
        others = [helper for helper in self._helpers if helper is not client]
        return Donors(history, others) if others else None

    def _check_bound(self, candidates: Sequence[_Candidate], log_format: LogFormat) -> None:
        """ConfigError where a number that replicas count by themselves means different places in them."""
        index = self._target.index
        if index is None and (self._target.sequence is None or log_format.self_numbered):
            return
        for candidate in candidates[1:]:
            one, two = candidates[0].plan, candidate.plan
            at, what = (0, "its first index") if index is None else (-1, f"index {index:x}")
            if one.files[at].name != two.files[at].name:
                here, there = f"{one.files[at].name} in {one.replica}", f"{two.files[at].name} in {two.replica}"
                raise ConfigError(
                    f"{what} is {here} and {there}: the bound means different places; give --generation, or one replica"
                )

    def _choose_best(self, candidates: Sequence[_Candidate]) -> _Candidate:
        """The furthest one whose history no other one's has left behind."""
        beginnings = sorted({candidate.beginning for candidate in candidates}, reverse=True)

        def rank(candidate: _Candidate) -> tuple[object, ...]:
            order, offset, whole = candidate.rank()
            return (order, offset, beginnings.index(candidate.beginning), whole)

        left = sorted(candidates, key=rank, reverse=True)
        while True:
            best = left[0]
            stale = next((other for other in left[1:] if self._leaves_behind(best, other)), None)
            if stale is None:
                return best
            left.remove(best)
            self._pass_over(best.client, _left_behind(best, stale))

    def _leaves_behind(self, best: _Candidate, other: _Candidate) -> bool:
        """Whether ``best`` holds a history that ``other`` has left. Passes over an ``other`` that is left itself."""
        if id(other.client) in self._errors:
            return False
        verdict, _ = agreed_place(best.history, other.history)
        if verdict is Verdict.SAME:
            return False
        if best.history.claim.log != other.history.claim.log:  # the format gives none: only the bytes can tell
            self._pass_over(other.client, _other_log(other.client, other.history.claim, best.history.claim))
            return False
        if verdict is Verdict.UNKNOWN:
            reason = f"cannot be compared with {best.client.url}: nothing whole lies in both"
            self._pass_over(other.client, LitelogError(reason))
            return False
        if _has_left(best, other):
            self._pass_over(other.client, _left_behind(other, best))
            return False
        if _has_left(other, best):
            return True
        raise DivergedReplicasError(best.client.url, str(best.plan.end), other.client.url, str(other.plan.end))


def describe(url: str, reason: object) -> str:
    """Why a replica is passed over, with its name."""
    text = str(reason)
    return text if text.startswith(url) else f"{url}: {text}"


class _JoinedError(LitelogError):
    """Several errors at once, which end a command as the one that matters most does."""

    def __init__(self, message: str, kind: LitelogError) -> None:
        self.exit_code = kind.exit_code
        super().__init__(message)


def _has_left(newer: _Candidate, older: _Candidate) -> bool:
    """Whether a replica knew the other's history, and left it: an older generation of it is of that one."""
    claim = newer.history.claim
    for before in readable_claims(newer.client):
        if before.epoch < claim.epoch and same_log(before, claim, newer.history.format):
            history = History(newer.client, before, newer.history.format)
            left = agreed_place(history, newer.history)[0] is Verdict.OTHER
            if left and agreed_place(history, older.history)[0] is Verdict.SAME:
                return True
    return False


def _left_behind(older: _Candidate, newer: _Candidate) -> LitelogError:
    return LitelogError(
        f"generation {older.plan.claim.generation} is a history of the log that {newer.client.url} has left (diverged)"
    )


def _other_log(client: ReplicaClient, claim: Claim, expected: Claim) -> OtherLogError:
    if claim.format != expected.format:
        return OtherLogError(client.url, f"one of format {expected.format}", f"{claim.log} of format {claim.format}")
    return OtherLogError(client.url, expected.log, claim.log)
