"""The checkpoints in a replica: whether a trusted key signed them, and whether the replica holds what they state."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.checkpoints.held_history import CheckpointComparison, HeldHistory
from litelog.checkpoints.signing import has_signature
from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, NotFoundError, NothingToRestoreError, UnknownVersionError
from litelog.objects.checkpoint_chain import StoredCheckpoint, decode_stored, join, link, newest_first
from litelog.objects.layout import checkpoint_key
from litelog.objects.position import Position
from litelog.reading.fetch import read_verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.stores.replica_client import ReplicaClient


_UNSIGNED = "no trusted key has signed"


@dataclass(frozen=True, slots=True)
class TrustedChain:
    """The checkpoints that a trusted key vouches for, oldest first, and what is wrong with them."""

    chain: Sequence[StoredCheckpoint]
    differences: Sequence[str]


def read_checkpoints(client: ReplicaClient) -> tuple[list[StoredCheckpoint], list[str]]:
    """Read all checkpoints of a replica. Returns them, and what is wrong with those that are damaged. Raises
    StoreError."""
    found: list[StoredCheckpoint] = []
    damaged: list[str] = []
    for each in client.checkpoints():
        key = checkpoint_key(each.generation, each.index)
        try:
            read = partial(client.read_checkpoint, each.generation, each.index)
            found.append(read_verified(read, partial(decode_stored, key)))
        except (CorruptionError, UnknownVersionError, NotFoundError) as error:
            damaged.append(f"holds a checkpoint that cannot be used: {error}")
    return found, damaged


def find_trusted(stored: Sequence[StoredCheckpoint], trusted: Iterable[str]) -> TrustedChain:
    """The newest checkpoint that a trusted key has signed, or a key that a trusted one names, with all that it
    continues.

    Args:
        stored: All checkpoints of a replica.
        trusted: Public keys, in hex.

    Returns:
        The chain, which may be empty.
    """
    trusted = list(trusted)
    keys = {*trusted, *(each.checkpoint.next_key for each in stored)}
    newest = newest_first(stored)
    differences = []
    for at, end in enumerate(newest):
        linked = link(stored, end) if end.checkpoint.key in keys else None
        faults = {} if linked is None else dict(_distrust(linked.chain, trusted))
        if linked is not None and (successor := _find_successor(stored, linked.chain)) is not None:
            faults[end.key] = f"is signed with the key {end.checkpoint.key}, which {successor.key} had replaced"
        if linked is None or end.key in faults:
            differences.append(f"holds {end.key}, which {faults.get(end.key, _UNSIGNED)}")
            continue
        apart = []
        if linked.fault is not None:
            faults[linked.chain[0].key] = linked.fault
        else:
            apart = list(_apart((each for each in newest[at:] if each.checkpoint.key in keys), linked.chain))
        in_chain = {each.key for each in linked.chain}
        strange = (each for each in newest[at:] if each.key not in in_chain and each.checkpoint.key not in keys)
        differences += [f"holds {each.key}, which {_UNSIGNED}" for each in strange]
        differences += [f"holds {each.key}, which {end.key} does not continue" for each in apart]
        differences += [f"holds {key}, which {what}" for key, what in faults.items()]
        return TrustedChain(linked.chain, differences)
    return TrustedChain((), [*differences, "holds no checkpoint that a trusted key has signed"])


def _distrust(chain: Sequence[StoredCheckpoint], trusted: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The flaws in the signatures of a chain: keys and descriptions. A trusted key vouches for the checkpoints
    before its own ones, which these name by digest."""
    known, retired = set(trusted), set[str]()
    named_by: dict[str, str] = {}
    has_begun = False
    for each in chain:
        checkpoint = each.checkpoint
        key = checkpoint.key or ""
        if not has_signature(checkpoint):
            yield each.key, "is not signed with the key that it states"
            continue
        if key in retired:
            yield each.key, f"is signed with the key {key}, after another key had replaced it"
        elif key in known:
            has_begun = True
            if (before := named_by.pop(key, key)) != key:
                retired.add(before)
            if checkpoint.next_key is not None and checkpoint.next_key != key:
                named_by[checkpoint.next_key] = key
                known.add(checkpoint.next_key)
                retired.discard(checkpoint.next_key)
        elif has_begun or each is chain[-1]:
            yield each.key, f"is signed with the key {key}, which no trusted key names"


def _find_successor(stored: Sequence[StoredCheckpoint], chain: Sequence[StoredCheckpoint]) -> StoredCheckpoint | None:
    """A checkpoint outside of a chain, signed with a key that the chain names, and which signs nothing in it: the chain
    was made with the key that this one replaced."""
    named = {each.checkpoint.next_key for each in chain} - {each.checkpoint.key for each in chain}
    found = (each for each in stored if each.checkpoint.key in named and has_signature(each.checkpoint))
    return next(found, None)


def _apart(stored: Iterable[StoredCheckpoint], chain: Sequence[StoredCheckpoint]) -> Iterator[StoredCheckpoint]:
    """The beginnings of other chains, of which no checkpoint continues any in ``chain``. An owner that was overtaken
    leaves a branch."""
    known = {each.digest for each in chain}
    for each in sorted(stored, key=lambda each: each.number):
        if each.digest not in known and has_signature(each.checkpoint):
            if each.checkpoint.previous not in known:
                yield each
            known.add(each.digest)


def compare_with_own(
    client: ReplicaClient,
    formats: Callable[[str], LogFormat],
    trusted: Iterable[str],
    known: StoredCheckpoint | Position | None = None,
) -> CheckpointComparison:
    """Compare a replica with its own checkpoints.

    Args:
        client: The replica; or a copy of its checkpoints alone, without any claim. Then only these are judged, and only
            against a known one: a replica of which a thief left nothing else looks the same.
        formats: Opens the format of the log.
        trusted: Public keys, in hex, of which one must have signed them.
        known: A checkpoint of the replica that was copied earlier, which it must still hold; or a position, to which it
            must have come.

    Raises:
        StoreError: A request failed.
    """
    stored, damaged = read_checkpoints(client)
    found = find_trusted(stored, trusted)
    differences = [*damaged, *found.differences]
    if isinstance(known, StoredCheckpoint) and known.digest not in {each.digest for each in found.chain}:
        differences.append(f"lacks the checkpoint {known.number} of {known.checkpoint.position}, or what continues it")
    expected = join(found.chain) if found.chain else None
    compared = CheckpointComparison(None, None, None, 0, 0, ())
    if expected is not None:
        stated = (expected.position, expected.time, expected.key)
        compared = CheckpointComparison(*stated, 0, 0, (), expected.number, len(found.chain))
    try:
        history = HeldHistory(client, formats) if client.claims() or not stored else None
        if expected is not None and history is not None:
            compared = replace(history.compare(expected), number=expected.number, chain=len(found.chain))
        if history is None and not isinstance(known, StoredCheckpoint):
            differences.append("holds none of the log segments that its checkpoints state: it has no claim")
        if isinstance(known, Position) and history is not None:
            differences += history.reach(known).differences
    except (NothingToRestoreError, CorruptionError) as error:
        differences.append(f"cannot be compared: {error}")
    return replace(compared, differences=(*differences, *compared.differences))
