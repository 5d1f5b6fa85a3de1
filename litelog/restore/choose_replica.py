"""Chooses the replica that reaches furthest, to restore it. The others replace the bytes that it lost.

Each replica has its own generations, indexes and WAL segments. All share the log: file names, offsets and bytes. If two
replicas hold different histories, no clock says which of them is right. If one of them also holds the other's history,
as a generation that it has left, its own history is later. Otherwise a person chooses.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import (
    ConfigError,
    CorruptionError,
    EmptyLogError,
    LitelogError,
    NothingToRestoreError,
    OtherLogError,
    StoreError,
)
from litelog.objects.claim import open_claimed_format
from litelog.restore.compare_histories import HistoryRelation, common_end, readable_claims, same_log
from litelog.restore.generation_bytes import GenerationBytes, LogPosition
from litelog.restore.history_plan import explain, find_generation, plan_history, require_keys
from litelog.restore.repair.fallbacks import FallbackReplicas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.reading.contents import GenerationContents
    from litelog.restore.plan import RestorePlan, Target
    from litelog.stores.replica_client import ReplicaClient

PARALLELISM = 16
"""Replicas that are examined concurrently, so that the time-outs of unreachable ones do not add up."""


class DivergedReplicasError(LitelogError):
    """Two replicas hold different histories of one log, and neither of them has ever held the other's."""

    def __init__(self, one: str, one_end: str, two: str, two_end: str) -> None:
        self.replicas = (one, two)
        super().__init__(
            f"{one} (up to {one_end}) and {two} (up to {two_end}) hold histories of one log that have diverged; "
            "give only the replica to restore from, or its --generation"
        )


@dataclass(frozen=True, slots=True)
class ReplicaChoice:
    """The plan to restore, and its replica."""

    client: ReplicaClient
    plan: RestorePlan
    log_format: LogFormat
    fallbacks: FallbackReplicas | None
    """None if no other replica can supply lost bytes."""
    skipped: tuple[tuple[str, str], ...]
    """Replicas that could not be chosen: the URL, and the reason."""


@dataclass(frozen=True, slots=True)
class _ReplicaView:
    """A replica of the log, and the history that a restore would take from it."""

    client: ReplicaClient
    history: GenerationBytes
    error: CorruptionError | None = None
    """The damage that only other replicas can replace; None without any."""


@dataclass(frozen=True, slots=True)
class _Candidate(_ReplicaView):
    plan: RestorePlan = field(kw_only=True)

    @property
    def end(self) -> tuple[object, ...]:
        """How far it reaches, as a sort key: further is greater."""
        file = self.plan.files[-1]
        return (self._order(file.name), file.size)

    @property
    def beginning(self) -> tuple[object, ...]:
        return self._order(self.plan.all_files[0].name)

    def _order(self, name: str) -> tuple[object, ...]:
        return self.history.format.segment_order(name) or ()


def choose(clients: Sequence[ReplicaClient], target: Target, open_format: Callable[[str], LogFormat]) -> ReplicaChoice:
    """Plan for ``target`` from the replica that reaches furthest.

    Skips a replica that is down, damaged, empty or of another log, as long as another one is left. If none is left,
    raises its error.

    Args:
        clients: The replicas.
        target: What to restore.
        open_format: Returns a log format by its name.

    Raises:
        DivergedReplicasError: Two replicas hold different histories, and neither of them has ever held the other's.
        ConfigError: The target's bound means different places in different replicas.
        NothingToRestoreError: No replica holds what the target names.
        CorruptObjectError, ReplicaGapError, StoreError: The error of a replica, if none is left.
    """
    try:
        return _Chooser(clients, target, open_format, dropped=False).choose()
    except (NothingToRestoreError, _JoinedError):  # an older snapshot may reach back far enough
        return _Chooser(clients, target, open_format, dropped=True).choose()


class _Chooser:
    def __init__(
        self,
        clients: Sequence[ReplicaClient],
        target: Target,
        open_format: Callable[[str], LogFormat],
        *,
        dropped: bool,
    ) -> None:
        """``dropped`` as in ``plan_generation``."""
        self._clients = clients
        self._dropped = dropped
        self._target = target
        self._open_format = open_format
        self._errors: dict[int, tuple[str, LitelogError]] = {}
        """Why a client's replica is not chosen, by the client's identity: two clients may have one URL."""
        self._agreed: dict[int, list[tuple[GenerationBytes, LogPosition]]] = {}
        """By the identity of a candidate: the histories that are the same as its own, and up to where."""
        self._held: dict[int, GenerationContents | None] = {}
        """The contents that were read to find a client's latest generation, by the client's identity."""
        self._helpers = list(clients)
        """The replicas that may supply lost bytes."""

    def choose(self) -> ReplicaChoice:
        claims = self._find_claims()
        log_format = open_claimed_format(claims[0][1], self._open_format)
        claims = self._same_logs(claims, log_format)
        views = [view for client, claim in claims if (view := self._view(client, claim, log_format))]
        candidates = [view for view in views if isinstance(view, _Candidate)]
        if not candidates:
            raise self._worst_error()
        self._check_bound(candidates, log_format)
        best = self._choose_best(candidates, views)
        fallbacks = self._fallbacks(best.client, best.history, self._agreed.get(id(best), ()))
        skipped = tuple((url, str(error)) for url, error in self._errors.values())
        return ReplicaChoice(best.client, best.plan, log_format, fallbacks, skipped)

    def _find_claims(self) -> list[tuple[ReplicaClient, Claim]]:
        with ThreadPoolExecutor(min(PARALLELISM, len(self._clients)), "look") as pool:
            found = list(pool.map(self._find_claim, self._clients))
        claims = []
        for client, claim in zip(self._clients, found, strict=True):
            if isinstance(claim, LitelogError):
                self._skip(client, claim)
            else:
                claims.append((client, claim))
        if not claims:
            raise self._worst_error()
        return claims

    def _find_claim(self, client: ReplicaClient) -> Claim | LitelogError:
        try:
            claim, self._held[id(client)] = find_generation(client, self._target)
        except LitelogError as error:
            return error
        return claim

    def _skip(self, client: ReplicaClient, error: LitelogError) -> None:
        """Remember why a replica is not chosen. A damaged or shorter one may still supply lost bytes."""
        named = isinstance(error, NothingToRestoreError) and self._target.generation is not None
        if not named or len(self._clients) == 1:  # each replica has its own generations
            self._errors[id(client)] = (client.url, error)
        if isinstance(error, (StoreError, OtherLogError)) and client in self._helpers:
            self._helpers.remove(client)

    def _worst_error(self) -> LitelogError:
        """The error to raise if no replica is left."""
        others = [error for _, error in self._errors.values() if not isinstance(error, NothingToRestoreError)]
        if len(self._errors) == 1:
            return next(error for _, error in self._errors.values())
        lines = [f"  {describe(url, error)}" for url, error in self._errors.values()]
        lines = ["no replica can be restored:", *lines] if lines else [f"no replica holds {self._target.generation}"]
        worst: LitelogError = NothingToRestoreError("\n".join(lines))
        empty = [error for _, error in self._errors.values() if isinstance(error, EmptyLogError)]
        if lines[1:] and len(empty) == len(self._errors):
            worst = EmptyLogError("\n".join(lines))
        if others:
            corrupt = (error for error in others if isinstance(error, CorruptionError))
            worst = _JoinedError("\n".join(lines), next(corrupt, others[0]))
        worst.lines = lines
        return worst

    def _same_logs(
        self, claims: list[tuple[ReplicaClient, Claim]], log_format: LogFormat
    ) -> list[tuple[ReplicaClient, Claim]]:
        first = claims[0][1]
        kept = []
        for client, claim in claims:
            if same_log(claim, first, log_format):
                kept.append((client, claim))
            else:
                self._skip(client, _other_log(client, claim, first))
        return kept

    def _view(self, client: ReplicaClient, claim: Claim, log_format: LogFormat) -> _ReplicaView | None:
        """View a replica: as a candidate; only as a view if it is damaged beyond repair; None if it holds nothing."""
        damage = None
        fallbacks = None
        while True:
            try:
                held = self._held.pop(id(client), None)
                plan = plan_history(
                    client, claim, self._target, log_format, fallbacks, dropped=self._dropped, held=held
                )
                require_keys(client, plan)
                history = GenerationBytes(
                    client, claim, log_format, plan.pieces, [piece.entry for piece in plan.sealed]
                )
                return _Candidate(client, history, damage, plan=plan)
            except CorruptionError as error:
                damage = damage or error
                fallbacks = (
                    self._fallbacks(client, GenerationBytes(client, claim, log_format)) if fallbacks is None else None
                )
                if fallbacks is None:
                    self._skip(client, explain(client, claim, damage))
                    return _ReplicaView(client, GenerationBytes(client, claim, log_format), damage)
            except LitelogError as error:
                self._skip(client, error)
                return None

    def _fallbacks(
        self,
        client: ReplicaClient,
        history: GenerationBytes,
        agreed: Sequence[tuple[GenerationBytes, LogPosition]] = (),
    ) -> FallbackReplicas | None:
        others = [helper for helper in self._helpers if helper is not client]
        return FallbackReplicas(history, others, agreed) if others else None

    def _check_bound(self, candidates: Sequence[_Candidate], log_format: LogFormat) -> None:
        """Raise ConfigError if the bound is a number that means different places in the replicas, as each one counts
        by itself."""
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

    def _choose_best(self, candidates: Sequence[_Candidate], views: Sequence[_ReplicaView]) -> _Candidate:
        """Choose the replica that reaches furthest, except those whose history another one has left. Of several such
        replicas, prefer the earliest beginning, and one without damage."""
        beginnings = sorted({candidate.beginning for candidate in candidates}, reverse=True)

        def rank(candidate: _Candidate) -> tuple[object, ...]:
            return (*candidate.end, beginnings.index(candidate.beginning), candidate.error is None)

        left = sorted(candidates, key=rank, reverse=True)
        others = list(views)
        while True:
            best = left.pop(0)
            others.remove(best)
            newer = next((other for other in others if self._is_behind(best, other)), None)
            if newer is None:
                break
            self._skip(best.client, _lagging(best, newer))
        for candidate in left:
            if candidate.error is not None:
                self._skip(candidate.client, candidate.error)
        return best

    def _is_behind(self, best: _Candidate, other: _ReplicaView) -> bool:
        """As ``_is_left_by``. Skips a replica that has become unreachable."""
        try:
            return self._is_left_by(best, other)
        except StoreError as error:
            self._skip(other.client, error)
            return False

    def _is_left_by(self, best: _Candidate, other: _ReplicaView) -> bool:
        """Whether ``other`` has left the history that ``best`` holds. Skips ``other`` if ``best`` has left its
        history."""
        verdict, place = common_end(best.history, other.history)
        if place is not None:
            self._agreed.setdefault(id(best), []).append((other.history, place))
            return False
        if best.history.claim.log != other.history.claim.log:  # without log ids in the format, only the bytes show it
            self._skip(other.client, _other_log(other.client, other.history.claim, best.history.claim))
            return False
        if verdict is HistoryRelation.UNKNOWN:
            reason = f"cannot be compared with {best.client.url}: no undamaged part is in both"
            self._skip(other.client, other.error or LitelogError(reason))
            return False
        if _has_left(best, other):
            self._skip(other.client, _lagging(other, best))
            return False
        if isinstance(other, _Candidate) and _has_left(other, best):
            return True
        raise DivergedReplicasError(*_name(best), *_name(other))


def describe(url: str, reason: object) -> str:
    """A line that names a skipped replica and the reason."""
    text = str(reason)
    return text if text.startswith(url) else f"{url}: {text}"


class _JoinedError(LitelogError):
    """Several errors at once. It has the exit code of the most important one."""

    def __init__(self, message: str, kind: LitelogError) -> None:
        self.exit_code = kind.exit_code
        super().__init__(message)


def _has_left(newer: _ReplicaView, older: _ReplicaView) -> bool:
    """Whether an older generation of ``newer`` belongs to the history of ``older``: ``newer`` has left that history."""
    claim = newer.history.claim
    for before in readable_claims(newer.client):
        if before.epoch < claim.epoch and same_log(before, claim, newer.history.format):
            history = GenerationBytes(newer.client, before, newer.history.format)
            left = common_end(history, newer.history)[0] is HistoryRelation.OTHER
            if left and common_end(history, older.history)[0] is HistoryRelation.SAME:
                return True
    return False


def _name(view: _ReplicaView) -> tuple[str, str]:
    """A replica's URL, and the end of its history."""
    end = view.plan.end if isinstance(view, _Candidate) else "where it is damaged"
    return view.client.url, str(end)


def _lagging(older: _ReplicaView, newer: _ReplicaView) -> LitelogError:
    held = f"generation {older.history.claim.generation}"
    return LitelogError(f"{held} is a history of the log that {newer.client.url} has left (diverged)")


def _other_log(client: ReplicaClient, claim: Claim, expected: Claim) -> OtherLogError:
    if claim.format != expected.format:
        return OtherLogError(client.url, f"one of format {expected.format}", f"{claim.log} of format {claim.format}")
    return OtherLogError(client.url, expected.log, claim.log)
