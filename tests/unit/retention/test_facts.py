"""Facts about a replica take memory for what exists, however many snapshots name it."""

from __future__ import annotations

import gc

import pytest

pytest.importorskip("pyarrow")

from litelog.retention.facts import Gathering, SealedRange
from tests.builders.batch_replicas import client_of, run, small_appends


def test_snapshots_share_what_they_name() -> None:
    """Each snapshot names all sealed segments of the log, so facts of their own would grow with the square."""
    facts = Gathering(client_of(small_appends(8))).gather()
    assert facts is not None
    named = [run for generation in facts.generations for one in generation.snapshots for run in one.names or ()]
    assert len(named) == 8 * 9 // 2
    assert len({id(run) for run in named}) == len(set(named)) == 8


def test_what_no_snapshot_names_any_more_is_forgotten() -> None:
    """A daemon gathers for as long as it runs, and each of its snapshots names another range."""
    replica = small_appends(5)
    client, gathering = client_of(replica), Gathering(client_of(replica))
    facts = gathering.gather()
    assert facts is not None
    places = [(generation.name, one.next) for generation in facts.generations for one in generation.snapshots]
    names = {generation.name for generation in facts.generations}
    del facts
    run(replica)
    client.delete_snapshots(places)
    facts = gathering.gather()
    assert facts is not None
    kept = {(one.generation, one.start) for one in gc.get_objects() if type(one) is SealedRange}
    assert len({place for place in kept if place[0] in names}) == 2
