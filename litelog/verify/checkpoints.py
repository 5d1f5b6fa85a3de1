"""The checkpoints in a replica: whether each is what was written, and continues the one before it.

Only a person with the signer's public key can say more (``checkpoints/replica_checkpoints.py``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import CorruptObjectError, NotFoundError, StoreError, UnknownVersionError
from litelog.objects.checkpoint_chain import decode_stored, link, newest_first
from litelog.reading.fetch import read_verified
from litelog.stores.object_store import read_bounded
from litelog.verify.findings import AnomalyKind, anomaly_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.objects.checkpoint_chain import StoredCheckpoint
    from litelog.stores.object_store import ObjectStore
    from litelog.verify.findings import Anomalies, Findings


def check_checkpoints(store: ObjectStore, keys: Iterable[str], findings: Findings) -> None:
    """Read the checkpoints of these keys, and report the anomalies. Memory grows with the log segments that they
    state."""
    found: list[StoredCheckpoint] = []
    is_whole = True
    for key in keys:
        findings.raise_if_stopped()
        findings.counts.checkpoints += 1
        try:
            found.append(read_verified(partial(read_bounded, store, key), partial(decode_stored, key)))
        except (CorruptObjectError, UnknownVersionError) as error:
            findings.anomalies.take(anomaly_of(key, error))
        except NotFoundError:
            findings.anomalies.add(AnomalyKind.MISSING, key, "was listed and is gone")
        except StoreError as error:
            findings.fail(error)
            is_whole = False
    if is_whole:
        _check_chain(found, findings.anomalies)


def _check_chain(found: list[StoredCheckpoint], anomalies: Anomalies) -> None:
    """Report what the newest checkpoint does not lead to, and where the way to the first one breaks off."""
    left = newest_first(found)
    oldest: StoredCheckpoint | None = None
    while left:
        linked = link(left, left[0])
        in_chain = {each.key for each in linked.chain}
        if oldest is not None and linked.chain[-1].number >= oldest.number:
            for each in linked.chain:
                what = f"is not continued by {oldest.key}: two owners wrote at the same time"
                anomalies.add(AnomalyKind.ORPHAN, each.key, what, harmful=False)
        else:
            oldest = linked.chain[0]
            if linked.fault is not None:
                anomalies.add(AnomalyKind.CHAIN, oldest.key, linked.fault)
        left = [each for each in left if each.key not in in_chain]
