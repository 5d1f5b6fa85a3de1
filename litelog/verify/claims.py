"""The claims of a replica: reads them, and judges them by themselves and by each other."""

from __future__ import annotations

from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NotFoundError, StoreError
from litelog.objects import claim as claims
from litelog.objects.layout import claim_key, parse_claim, wal_prefix
from litelog.objects.position import Generation, Position, epoch_of
from litelog.reading.fetch import READ_ATTEMPTS
from litelog.stores.decryption import generation_keys
from litelog.stores.object_store import read_bounded
from litelog.verify.findings import AnomalyKind, anomaly_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.objects.claim import Claim
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.findings import Findings

FIRST_EPOCH = 1
"""The epoch of a replica's first claim. Claims are never deleted, so the epochs after it have no holes."""


@dataclass(slots=True)
class Claims:
    """All claims that can be read, and the keys of all that exist."""

    by_generation: dict[Generation, Claim] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    isolated: set[Generation] = field(default_factory=set)
    """Generations whose claims have their names in their keys: no other owner closes them, and nothing fences them."""

    def ends(self) -> Iterator[tuple[Position, str]]:
        """(end of a generation, key of the claim that states it), for each claim with a predecessor."""
        for claim in self.by_generation.values():
            if claim.predecessor_end is not None:
                yield claim.predecessor_end, claim.key


class ClaimReader:
    """Reads claims. Before it reports one as missing, it tries to read it."""

    def __init__(self, store: ObjectStore, findings: Findings) -> None:
        self._store = store
        self._findings = findings
        self.claims = Claims()

    def read(self, keys: Iterable[str]) -> Claims:
        """Read all claims of these keys, and those that the listing did not show. Report the anomalies."""
        for key in keys:
            self._read(key)
        self._fill_holes()
        for claim in list(self.claims.by_generation.values()):
            self._check(claim)
            self._authenticate(claim)
        return self.claims

    def require(self, key: str, why: str) -> None:
        """Require a claim that another object names: read it if no listing showed it, or report it as missing."""
        if key in self.claims.keys:
            return
        if not self._read(key):
            self._findings.anomalies.add(AnomalyKind.MISSING, key, why)
            self.claims.keys.add(key)  # reported only once

    def require_of(self, name: Generation) -> None:
        """Check that a generation with objects was claimed: claims are never deleted."""
        epoch = epoch_of(name)
        rivals = [other for other in self.claims.by_generation if epoch_of(other) == epoch]
        if any(other not in self.claims.isolated for other in rivals):
            what = f"is not claimed; {claim_key(epoch)} is another one's"
            self._findings.anomalies.add(AnomalyKind.ORPHAN, wal_prefix(name).removesuffix("wal/"), what, harmful=False)
        else:
            key = claim_key(epoch, name) if self.claims.isolated else claim_key(epoch)
            self.require(key, f"is missing; generation {name} is there")

    def _read(self, key: str) -> bool:
        """Read a claim, and report what is wrong with it. Return whether it exists."""
        findings = self._findings
        try:
            for number in range(READ_ATTEMPTS):
                body = read_bounded(self._store, key)
                try:
                    self._enter(key, claims.parse(body))
                    break
                except ValueError as error:
                    if number == READ_ATTEMPTS - 1:
                        kind = AnomalyKind.FOREIGN if isinstance(error, _OtherKeyError) else AnomalyKind.CHECKSUM
                        findings.anomalies.add(kind, key, f"claim: {error}")
        except NotFoundError:
            return False
        except StoreError as error:
            findings.fail(error)
            self.claims.keys.add(key)
            name = parse_claim(key)
            if name is not None and name.isolated is not None:
                self.claims.isolated.add(name.isolated)
            return True
        self.claims.keys.add(key)
        findings.counts.claims += 1
        findings.count_judged(len(body))
        return True

    def _enter(self, key: str, claim: Claim) -> None:
        """Take a claim that matches its key. Raises ValueError if it does not."""
        name = claim.generation
        if claim.key != key:
            raise _OtherKeyError(f"is that of generation {name}, and belongs to {claim.key}")
        if claim.is_isolated:
            self.claims.isolated.add(name)
        self.claims.by_generation[name] = claim

    def _fill_holes(self) -> None:
        """Report holes in the epochs: claims are never deleted, so each epoch between two existing ones has one."""
        found = {parsed[0] for key in self.claims.keys if (parsed := parse_claim(key)) is not None}
        for before, epoch in pairwise(sorted({FIRST_EPOCH - 1, *found})):
            for hole in range(before + 1, min(epoch, before + 1 + _MAX_HOLES)):
                more = f" (and {epoch - hole - 1} more after it)" if hole - before == _MAX_HOLES else ""
                self.require(claim_key(hole), f"is missing; {claim_key(epoch)} was created after it{more}")

    def _check(self, claim: Claim) -> None:
        if claim.predecessor is None:
            return
        older = claim.predecessor
        found = self.claims.by_generation.get(older)
        if found is None:
            if older not in self.claims.isolated:
                self.require(claim_key(epoch_of(older)), f"is missing; {claim.key} names its generation as predecessor")
            return
        for what in ("log", "format"):
            mine, theirs = getattr(claim, what), getattr(found, what)
            if mine != theirs:
                self._conflict(claim, f"{what} is {mine}, and {theirs} in {found.key}")

    def _authenticate(self, claim: Claim) -> None:
        """Report the claim of an encrypted generation that somebody without its key changed, if the store has it."""
        keys = generation_keys(self._store)
        if keys is None or claim.encryption is None:
            return
        try:
            keys.require_key(claim.generation)
        except CorruptObjectError as error:
            self._findings.anomalies.take(anomaly_of(claim.key, error))

    def _conflict(self, claim: Claim, what: str) -> None:
        self._findings.anomalies.add(AnomalyKind.CONFLICT, claim.key, what)


_MAX_HOLES = 100
"""How many missing claims in a row are reported one by one."""


class _OtherKeyError(ValueError):
    """A claim is stored under another claim's key."""
