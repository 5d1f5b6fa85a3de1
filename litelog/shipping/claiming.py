"""One writer: claims, closes older generations, and proves ownership, as litelog/shipping/README.md#one-writer says.

There is exactly one next slot in a generation. The owner that creates the object there decides how the generation
continues: its own owner with a WAL segment, a successor with a terminal. So a successor that holds the slot knows the
generation's end, and the old owner's next put fails.

If the store does not decide (isolated fencing), an owner leaves other isolated owners' generations alone: a terminal
might replace an object that its owner has just put there. Such a generation stays open. Its owner finds the newer claim
when it looks for one. Until then both write, each in its own generation.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import CorruptObjectError, ExistsError, FencedError, NotFoundError, StoreError
from litelog.objects import claim as claims
from litelog.objects import snapshot, wal_segment
from litelog.objects.layout import CLAIMS, Fencing, claim_key
from litelog.objects.position import Generation, Position
from litelog.objects.wal_segment import WalHeader
from litelog.reading.fetch import READ_ATTEMPTS
from litelog.reading.generations import find_newer, find_tip, read_claim, read_forward
from litelog.retention.policy import GRACE_SECONDS
from litelog.stores.object_store import NotSupportedError
from litelog.stores.trial import NotCreateOnlyError
from litelog.units import format_second

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.position import ClaimName
    from litelog.reading.generations import GenerationEnd
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock


MAX_SLOTS_LOST = 1000
"""How many slots a closing owner may lose to the generation that it closes. It needs only one: then the old owner's
next put fails."""


class LostRaceError(FencedError):
    """Another daemon claimed the same epoch at the same moment."""

    def __init__(self, replica: str, key: str) -> None:
        super().__init__(f"{replica}: another daemon has just created {key}; only one may write")


class SucceededError(FencedError):
    """A newer claim exists. ``owner`` made it."""

    def __init__(self, replica: str, generation: Generation, newer: Claim) -> None:
        self.owner = newer.owner
        super().__init__(
            f"{replica}: generation {generation} was succeeded by {newer.generation}: owner {newer.owner[:8]} on "
            f"{newer.host} took the replica over at {format_second(newer.time)}"
        )


class ReplicaUnavailableError(StoreError):
    """The replica does not hold the claim that this owner made: it is not the replica that the owner ships to."""

    def __init__(self, replica: str, key: str, what: str = "is not there") -> None:
        super().__init__(
            "prove",
            key,
            f"{what}: {replica} is not the replica that this daemon ships to, or has lost its claim. Is it mounted, "
            "and is it the right folder or bucket? Nothing is shipped until the claim is back. To begin again with an "
            "empty replica, stop the daemon, run `litelog forget LOG REPLICA`, and start it again",
        )


def require_fencing(client: ReplicaClient, fencing: Fencing) -> None:
    """Raise NotCreateOnlyError if the client is known not to fence, but must. No request."""
    if fencing is Fencing.REQUIRED and not client.enforces_create_only:
        raise NotCreateOnlyError(
            CLAIMS, f"{client.url}: a put there checks that the key is free, and then writes: two may do so at once"
        )


def create_claim(client: ReplicaClient, claim: Claim, *, refuses: bool = False) -> None:
    """Put the claim, and put it again (once only, if isolated): the store must refuse the second put.

    After a failure, repeat the call with the same claim: a claim that is there with the same bytes is ours. Raises
    NotCreateOnlyError if the store does not keep writers apart, LostRaceError if another owner has that name.

    ``refuses``: the store has just refused the second put of another claim, so this one is put once.
    """
    body = claims.encode(claim)
    once = claim.is_isolated or refuses
    for _ in range(1 if once else 2):
        try:
            client.write_claim(claim.name, body)
        except ExistsError:
            if read_claim(client, claim.name) != claim:
                raise LostRaceError(client.url, claim.key) from None
            return
        except NotSupportedError as error:
            raise NotCreateOnlyError(claim.key, error.reason) from error
    if not once:
        raise NotCreateOnlyError(claim.key, "a second create-only put was not refused")


def close_below(
    client: ReplicaClient,
    successor: Claim,
    below: Iterable[Claim],
    clock: Clock,
    read_tip: Callable[[Claim], GenerationEnd] | None = None,
) -> dict[Generation, GenerationEnd]:
    """End every open generation in ``below`` (newest first). Return their tips by generation. Idempotent.

    ``read_tip`` returns how far a generation has come; None: read it from the replica.

    Stops after the first generation whose owner wrote a snapshot or a WAL segment: that owner had closed all below it.
    (It must not stop at a closed one: the owner that closed that one may have died before it came to the next.) An
    isolated owner skips the generations of other isolated owners, so an isolated generation does not end the search.
    """
    tips: dict[Generation, GenerationEnd] = {}
    for claim in below:
        if claim.is_isolated and successor.is_isolated and claim.owner != successor.owner:
            continue
        tip = _close(client, claim, successor, clock, read_tip or partial(find_tip, client))
        tips[claim.generation] = tip
        if tip.started and not claim.is_isolated:
            break
    return tips


def require_newest(client: ReplicaClient, claim: Claim, *, put: bool = True) -> None:
    """Raise SucceededError if there is a newer claim. One request, unless there is.

    ``put``: the claim itself was put. Then raises ReplicaUnavailableError if it is not there: the claims of another
    replica, mounted instead of this one, fence no owner.
    """
    newer = find_newer(client, claim)
    if newer is None:
        return
    if put:
        require_claim(client, claim)
    elif newer.log != claim.log:
        raise ReplicaUnavailableError(client.url, newer.key, f"is of log {newer.log}, not {claim.log}")
    raise SucceededError(client.url, claim.generation, newer)


def require_claim(client: ReplicaClient, claim: Claim) -> None:
    """Raise ReplicaUnavailableError if the claim is not there with its content. One GET."""
    try:
        found = read_claim(client, claim.name)
    except NotFoundError:
        raise ReplicaUnavailableError(client.url, claim.key) from None
    except CorruptObjectError as error:
        raise ReplicaUnavailableError(client.url, claim.key, f"cannot be read ({error.what})") from error
    if found.generation != claim.generation:
        message = f"is of generation {found.generation} of owner {found.owner} on {found.host}, not {claim.generation}"
        raise ReplicaUnavailableError(client.url, claim.key, message)


def require_epoch(client: ReplicaClient, names: Sequence[ClaimName], epoch: int) -> None:
    """Raise ReplicaUnavailableError if a listing of claims ends before ``epoch``, which had one: claims are kept."""
    if (names[-1].epoch if names else 0) < epoch:
        raise ReplicaUnavailableError(client.url, claim_key(epoch))


def check_ownership(client: ReplicaClient, claim: Claim, last: Position | None, digest: str) -> bool:
    """Whether the object that ends at our position is there with our digest. Two requests: this one and the claim's.

    ``last`` is the position of the last WAL segment. None: the snapshot is the last object; then a listing also shows
    that no WAL segment follows. Raises SucceededError if a newer claim exists.
    """
    require_newest(client, claim)
    try:
        if last is None:
            name = claim.generation
            first = next((info.position for info in client.wal_segments(name)), Position(name, claim.first, 0))
            there = any(
                snapshot.digest(client.read_snapshot(name, claim.first)) == digest for _ in range(READ_ATTEMPTS)
            )
            return there and first == Position(name, claim.first, 0)
        return any(wal_segment.digest([client.read_wal_segment(last)]) == digest for _ in range(READ_ATTEMPTS))
    except NotFoundError:
        return False


def _close(
    client: ReplicaClient, claim: Claim, successor: Claim, clock: Clock, read_tip: Callable[[Claim], GenerationEnd]
) -> GenerationEnd:
    """End a generation. If a look or a put was late, its owner may have continued meanwhile, and deleted what it had
    put into the slot: then the terminal ends nothing, and the next slot is searched for again."""
    looked = clock.monotonic()
    tip = read_tip(claim)
    for _ in range(MAX_SLOTS_LOST):
        if tip.terminal is not None:
            return tip
        slot, terminal = tip.slot, _terminal(claim, successor, tip, clock.now())
        body = b"".join(wal_segment.encode(terminal, b""))
        is_put = not _is_late(clock, looked) and _put_terminal(client, slot, body)
        is_late = _is_late(clock, looked)
        if is_put and not is_late:
            return tip.ended_by(terminal)
        looked = clock.monotonic()
        tip = read_tip(claim) if is_late else read_forward(client, tip)
        if is_late and tip.slot != slot:
            _delete_terminal(client, slot, body)
    raise StoreError("put", str(tip.slot), f"lost {MAX_SLOTS_LOST} slots in a row to the generation that it closes")


def _put_terminal(client: ReplicaClient, slot: Position, body: bytes) -> bool:
    """Put a terminal. Return whether the slot was free. If not, its owner was faster, or the answer to an earlier try
    was lost."""
    try:
        client.write_wal_segment(slot, [body])
    except ExistsError:
        return False
    return True


def _delete_terminal(client: ReplicaClient, slot: Position, body: bytes) -> None:
    """Delete our terminal from a slot that was emptied, if it came there: newer WAL segments follow, and no reader
    finds the end there."""
    with suppress(StoreError):
        if client.read_wal_segment(slot) == body:
            client.delete_wal_segments([slot])


def _is_late(clock: Clock, looked: float) -> bool:
    return clock.monotonic() - looked > GRACE_SECONDS / 2


def _terminal(claim: Claim, successor: Claim, tip: GenerationEnd, now: int) -> WalHeader:
    last, slot = tip.last, tip.slot
    header = WalHeader.of(claim, slot.index, slot.offset, previous=tip.digest, shipped=now)
    header = replace(header, owner=successor.owner, successor=successor.key)
    if last is None:
        return header
    header = replace(header, next=last.next, shipped=max(now, last.shipped))
    if last.final or last.index != slot.index:
        return header
    return replace(header, file=last.file, crc_total=last.crc_total)
