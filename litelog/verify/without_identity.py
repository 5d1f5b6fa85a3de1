"""Verifies what can be seen of an encrypted replica without an identity: claims, names, sizes, and framing.

Encrypted contents are not judged: records, headers, footers, snapshots, the chain of digests.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.encryption.chunks import MAGIC, decrypted_size
from litelog.errors import CorruptObjectError, NotFoundError, StoreError
from litelog.objects import layout
from litelog.objects.position import Position
from litelog.reading.fetch import OrderedPool, read_verified
from litelog.stores.capabilities import kept_versions
from litelog.stores.decryption import EXCHANGED_CLAIM
from litelog.stores.object_store import ByteRange, ordered
from litelog.system.clock import SystemClock
from litelog.verify.anchored_store import AnchoredStore
from litelog.verify.claims import ClaimReader
from litelog.verify.findings import Anomalies, AnomalyKind, Findings, Scope, Watch
from litelog.verify.inventory import take_inventory
from litelog.verify.report import VerifiedGeneration, VerifyReport
from litelog.verify.versions import check_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.stores.object_store import ObjectInfo, ObjectStore
    from litelog.system.clock import Clock

PARALLELISM = 4


@dataclass(slots=True)
class _Names:
    """The facts in the names of a generation's objects."""

    offsets: dict[int, int] = field(default_factory=dict)
    """The lowest offset of a WAL segment, by index."""
    sealed: set[int] = field(default_factory=set)
    snapshots: list[int] = field(default_factory=list)
    wal_segments: int = 0


def verify_without_identity(
    store: ObjectStore, *, parallelism: int = PARALLELISM, watch: Watch | None = None, clock: Clock | None = None
) -> VerifyReport:
    """Check what can be seen of the replica in ``store``, which is encrypted and not decrypted by it.

    Args:
        store: The replica's object store.
        parallelism: The number of objects of which the framing is read at a time.
        watch: Receives progress and anomalies, and may stop the verification.
        clock: For times in the report.

    Returns:
        The report. ``hidden`` counts the objects whose contents were not judged.

    Raises:
        StoreError: The store cannot be listed.
        VerifyStoppedError: ``watch`` stopped the verification.
    """
    clock, watch = clock or SystemClock(), watch or Watch()
    started = clock.monotonic()
    findings = Findings(watch, Anomalies(watch.anomaly))
    anchored = AnchoredStore(store)
    seen = take_inventory(anchored, findings.anomalies)
    findings.total, findings.total_bytes = seen.objects, seen.bytes
    reader = ClaimReader(anchored, findings)
    claims = reader.read(seen.claims)
    names: dict[Generation, _Names] = {name: _Names() for name in claims.by_generation}
    for name in seen.generations:
        if name not in claims.by_generation:
            reader.require_of(name)
    encrypted = {name for name, claim in claims.by_generation.items() if claim.encryption is not None}
    with OrderedPool(parallelism) as pool:
        listing = (info for prefix in (layout.GENERATIONS, layout.CHECKPOINTS) for info in _listed(anchored, prefix))
        for info, fault in pool.map(partial(_check_frame, anchored, encrypted, findings), listing):
            findings.raise_if_stopped()
            _note(names, info, findings)
            if fault is not None:
                findings.anomalies.add(AnomalyKind.CHECKSUM, info.key, fault)
            findings.count_judged(info.size)
    findings.counts.generations = len(names)
    reports = [
        _judge(name, held, claims.by_generation.get(name), names, findings.anomalies)
        for name, held in sorted(names.items())
    ]
    check_versions(kept_versions(store), claims.isolated, findings)
    return VerifyReport.of(store.url, findings, Scope(), reports, None, clock.monotonic() - started)


def _listed(store: ObjectStore, prefix: str) -> Iterator[ObjectInfo]:
    return (info for info in ordered(store.list(prefix)) if layout.parse_generation(info.key) is not None)


def _check_frame(
    store: ObjectStore, encrypted: set[Generation], findings: Findings, info: ObjectInfo
) -> tuple[ObjectInfo, str | None]:
    """Find a flaw in the framing of an object; None if it has none. An object of a generation that is not encrypted
    has one if it is."""

    def read(byte_range: ByteRange) -> bytes:
        with store.open(info.key, byte_range) as stream:
            return stream.read()

    is_encrypted = layout.parse_generation(info.key) in encrypted

    def check(ends: tuple[bytes, bytes]) -> None:
        if is_encrypted and ends != (MAGIC, MAGIC):
            raise CorruptObjectError(info.key, "is not encrypted, though its generation is, or is cut off")
        if not is_encrypted and ends == (MAGIC, MAGIC):
            raise CorruptObjectError(info.key, EXCHANGED_CLAIM)

    try:
        if is_encrypted:
            decrypted_size(info.key, info.size)
        elif info.size < 2 * len(MAGIC):
            return info, None
        last = ByteRange(info.size - len(MAGIC), len(MAGIC))
        read_verified(lambda: (read(ByteRange(0, len(MAGIC))), read(last)), check)
    except CorruptObjectError as error:
        return info, error.what
    except NotFoundError:
        return info, None  # retention deleted it
    except StoreError as error:
        findings.fail(error)
    return info, None


def _note(names: dict[Generation, _Names], info: ObjectInfo, findings: Findings) -> None:
    """Count an object whose name is in the layout."""
    counts = findings.counts
    position, sealed = layout.parse_wal(info.key), layout.parse_sealed(info.key)
    snapshot = layout.parse_snapshot(info.key)
    name = layout.parse_generation(info.key)
    if name is None:
        return
    held = names.setdefault(name, _Names())
    if position is not None:
        held.offsets[position.index] = min(position.offset, held.offsets.get(position.index, position.offset))
        held.wal_segments += 1
        counts.wal_segments += 1
    elif sealed is not None:
        held.sealed.add(sealed[1])
        counts.sealed_segments += 1
    elif snapshot is not None:
        held.snapshots.append(snapshot[1])
        counts.snapshots += 1
    elif layout.parse_checkpoint(info.key) is not None:
        counts.checkpoints += 1
    else:
        return
    counts.hidden += 1
    counts.object_bytes += info.size


def _judge(
    name: Generation,
    held: _Names,
    claim: Claim | None,
    names: dict[Generation, _Names],
    anomalies: Anomalies,
) -> VerifiedGeneration:
    """Report what is missing among the names of a generation."""
    covered = max(held.snapshots, default=None)
    _find_gaps(name, held, covered or 0, anomalies)
    older = any(other.snapshots for earlier, other in names.items() if earlier < name)
    if covered is None and held.wal_segments > 1 and older:
        anomalies.add(AnomalyKind.MISSING, layout.snapshot_prefix(name), "there is none, and there are WAL segments")
    first = 0 if claim is None else claim.first
    own = sorted(index for index in held.sealed if first <= index < (covered or 0))
    for before, index in pairwise([*own, *((covered,) if own and covered is not None else ())]):
        for missing in range(before + 1, min(index, before + 2)):
            anomalies.add(
                AnomalyKind.MISSING, layout.sealed_key(name, missing), "lies between others, and is not there"
            )
    relation = None if claim is None else str(claim.relation)
    counts = (len(held.snapshots), len(held.sealed), held.wal_segments)
    return VerifiedGeneration(name, relation, False, None, None, covered, *counts)


def _find_gaps(name: Generation, held: _Names, covered: int, anomalies: Anomalies) -> None:
    """Report indexes without WAL segments, or without the first one, from index ``covered`` on."""
    last = covered - 1 if held.snapshots else None
    for index in sorted(index for index in held.offsets if index >= covered):
        if last is not None and index > last + 1:
            key = layout.wal_key(Position(name, last + 1, 0))
            anomalies.add(AnomalyKind.GAP, key, f"is missing, and index {index} is there")
        if held.offsets[index]:
            key = layout.wal_key(Position(name, index, 0))
            anomalies.add(AnomalyKind.GAP, key, f"is missing, and offset {held.offsets[index]:#x} is there")
        last = index
