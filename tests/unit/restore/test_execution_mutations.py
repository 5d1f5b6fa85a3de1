"""The test changes a field of an object, and corrects all checksums: no restore ever writes wrong bytes.

The rule: a restore and a read give the whole log, byte for byte, or end with a LitelogError that names an object. If
either ends with an error, a verification finds an anomaly, too.
"""

from __future__ import annotations

import re
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import LitelogError
from litelog.formats.registry import open_format
from litelog.objects.claim import open_claimed_format
from litelog.reading.replica_reader import ReplicaReader
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_generation, plan_history
from litelog.verify.execution import verify
from litelog_cli.listing import describe_generations
from litelog_cli.segment_listing import replica_segments
from tests.builders.mutations import mutate, mutations
from tests.builders.replica_builder import client_of
from tests.builders.shifted_generations import LOG as GROWN_LOG
from tests.builders.shifted_generations import grown, sealed
from tests.builders.verify_helper import LOG, everything
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from litelog.stores.object_store import ObjectReplicaClient
    from tests.builders.replica_builder import LogSegment, ReplicaBuilder

REPLICAS: dict[str, tuple[Callable[[], ReplicaBuilder], Sequence[LogSegment]]] = {
    "everything": (everything, LOG),
    "grown": (partial(grown, 1), GROWN_LOG),
    "sealed": (partial(sealed, 0), GROWN_LOG),
}
KINDS = ("epochs/", "/wal/", "/segments/", "/snapshots/")
SAMPLE = 6
"""Changes of each kind of object, in each replica."""

NAMED = re.compile(r"(epochs|generations)/[0-9a-f]|[0-9a-f]{16}/[0-9a-f]{16}/[0-9a-f]{16}")
"""A key, or a position."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REPLICAS)
def test_a_changed_field_is_harmless_or_named(name: str, kind: str) -> None:
    build, log = REPLICAS[name]
    objects = build().objects()
    expected = {segment.name: segment.data for segment in log}
    records = read(client_of(objects))
    changes = [change for change in mutations(objects) if kind in change[0]]
    wrong = []
    for key, path, value in sampled(changes, max(1, len(changes) // SAMPLE), f"changed fields: {name} {kind}"):
        mutation = mutate(objects, key, path, value)
        wrong += [f"{mutation}: {what}" for what in faults(mutation.objects, expected, records)]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("name", REPLICAS)
def test_an_unchanged_replica_has_no_fault(name: str) -> None:
    build, log = REPLICAS[name]
    objects = build().objects()
    assert faults(objects, {segment.name: segment.data for segment in log}, read(client_of(objects))) == []
    assert verify(client_of(objects).store, formats=open_format).harmful == 0


def faults(objects: dict[str, bytes], expected: Mapping[str, bytes], records: object) -> list[str]:
    """The faults of a restore, a read, a listing and a verification of these objects."""
    found, ended = [], False
    for act, whole in ((restored, expected), (read, records), (listed, None)):
        try:
            got = act(client_of(objects))
        except LitelogError as error:
            ended = ended or act is not listed
            if not NAMED.search(str(error)):
                found.append(f"{act.__name__} names no object: {error}")
        except Exception as error:  # noqa: BLE001 - any other is a fault
            found.append(f"{act.__name__} ends with {type(error).__name__}: {error}")
        else:
            if whole is not None and got != whole:
                found.append(f"{act.__name__} gives another log")
    report = verify(client_of(objects).store, formats=open_format, parallelism=1)
    if ended and not (report.harmful or report.unknown_formats):
        found.append("verify is content")
    return found


def restored(client: ObjectReplicaClient) -> dict[str, bytes]:
    """The files that a restore writes."""
    claim, contents = find_generation(client, Target())
    log_format = open_claimed_format(claim, open_format)
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_history(client, claim, Target(), log_format, held=contents)
        restore(client, plan, f"{folder}/out", log_format=log_format)
        return {path.name: path.read_bytes() for path in Path(folder, "out").iterdir()}


def read(client: ObjectReplicaClient) -> list[tuple[int, bytes]]:
    """The records that a reader gives."""
    with ReplicaReader(client) as reader:
        return [(record.sequence, record.value) for batch in reader.batches() for record in batch.records()]


def listed(client: ObjectReplicaClient) -> None:
    """List all that verbs list."""
    describe_generations(client)
    list(replica_segments(client, find_generation(client, Target())[0]))
