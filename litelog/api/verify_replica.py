"""Verifies a replica, in one call."""

from __future__ import annotations

import os
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING

from litelog.errors import NoReplicaError
from litelog.formats.registry import open_stored_format
from litelog.stores.opening import opened_replica
from litelog.stores.replica_address import address_of
from litelog.verify.execution import PARALLELISM, verify
from litelog.verify.findings import Scope, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.stores.replica_address import Replica
    from litelog.verify.findings import VerifyProgress
    from litelog.verify.report import VerifyReport

SEED_BITS = 32


def verify_replica(
    replica: Replica,
    *,
    against: str | os.PathLike[str] | None = None,
    sample: float = 1.0,
    seed: int | None = None,
    pattern: str | None = None,
    parallelism: int = PARALLELISM,
    progress: Callable[[VerifyProgress], None] | None = None,
) -> VerifyReport:
    """Check everything that a replica holds. Changes nothing. Damage is in the report, and raises no error.

        report = litelog.verify_replica("s3://backups/orders")
        assert report.is_sound, report.anomalies

    Args:
        replica: the replica's URL or path, or a ReplicaConfig, which has options as well.
        against: the folder of a log to compare the replica with; None: compare with none.
        sample: the share of the contents to read, from 0 to 1. Structure is always read.
        seed: selects the sample; None: a random seed, which the report states.
        pattern: the shell pattern for the names of log segments, for the formats ``lines`` and ``raw``; None: all.
        parallelism: how many objects are read at a time.
        progress: called after each object, in this thread.

    Returns:
        The report, with all anomalies.

    Raises:
        NoReplicaError: the URL holds no replica.
        ConfigError: no installed package serves the URL.
        StoreError: the store cannot be listed.
        SourceError: the log cannot be read.
        ValueError: ``sample`` or ``parallelism`` is out of range.
    """
    scope = Scope(sample, SystemRandom().getrandbits(SEED_BITS) if seed is None else seed)
    url, options = address_of(replica)
    with opened_replica(url, options) as client:
        report = verify(
            client.store,
            formats=partial(open_stored_format, pattern=pattern),
            scope=scope,
            parallelism=parallelism,
            against=None if against is None else os.fspath(against),
            watch=Watch(progress),
        )
        if report.is_empty:
            raise NoReplicaError(client.url)
    return report
