"""The positions of consumers in a replica: whether each object is what was written."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import CorruptObjectError, NotFoundError, StoreError, UnknownVersionError
from litelog.objects import consumer_position
from litelog.reading.fetch import read_verified
from litelog.stores.object_store import read_bounded
from litelog.verify.findings import anomaly_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.stores.object_store import ObjectStore
    from litelog.verify.findings import Findings


def check_consumers(store: ObjectStore, keys: Iterable[str], findings: Findings) -> None:
    """Read the positions of these keys, and report the anomalies. If a position is gone, a newer one has replaced
    it."""
    for key in keys:
        findings.raise_if_stopped()
        try:
            read_verified(partial(read_bounded, store, key), partial(consumer_position.decode, key))
        except (CorruptObjectError, UnknownVersionError) as error:
            findings.anomalies.take(anomaly_of(key, error))
        except NotFoundError:
            continue
        except StoreError as error:
            findings.fail(error)
