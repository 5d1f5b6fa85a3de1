"""Comparisons of replicas with checkpoints: what may change, and what a person who can write to the store cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.checkpoints.held_history import HeldHistory
from litelog.formats.registry import open_format
from litelog.objects.claim import Relation
from litelog.objects.position import Position
from tests.builders.replica_builder import ReplicaBuilder, client_of, make_log, make_segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.checkpoints.held_history import CheckpointComparison
    from litelog.objects.checkpoint import Checkpoint
    from tests.builders.replica_builder import GenerationBuilder

LOG = make_log([[2, 1, 3], [1, 1, 2, 1], [2, 2, 1], [1, 1]])
NOW = 1_795_600_000_000_000


class Replica:
    """A replica of two finished log segments, and the beginning of a third one."""

    def __init__(self) -> None:
        self.builder = ReplicaBuilder()
        self.built = self.builder.add()
        self.built.ship_segment(LOG[0], cuts=[0])
        self.built.ship_segment(LOG[1], cuts=[1])
        self.built.ship(LOG[2].data[: LOG[2].ends[0]], LOG[2].name)

    def history(self) -> HeldHistory:
        return HeldHistory(client_of(self.builder.objects()), open_format)

    def checkpoint(self) -> Checkpoint:
        return self.history().checkpoint(NOW, 13, None)

    def grow(self) -> None:
        self.built.ship(LOG[2].data[LOG[2].ends[0] :], LOG[2].name, final=True)
        self.built.ship(LOG[3].data, LOG[3].name)


@pytest.fixture
def replica() -> Replica:
    return Replica()


def judged(comparison: CheckpointComparison) -> tuple[int, int, tuple[str, ...]]:
    return comparison.compared, comparison.dropped, comparison.differences


def grown(replica: Replica) -> None:
    replica.grow()


def sealed(replica: Replica) -> None:
    replica.grow()
    replica.built.snapshot(3)
    replica.built.prune(3)


def continued(replica: Replica) -> None:
    replica.grow()
    entries = [replica.built.seal(index) for index in range(3)]
    following = replica.builder.add(replica.builder.claim(first=3), start=False)
    following.start(entries, end=Position(replica.built.name, 3, 0))
    following.ship(LOG[3].data, LOG[3].name)


@pytest.mark.parametrize("later", [lambda _: None, grown, sealed, continued])
def test_a_replica_that_only_grew_holds_the_checkpoint(replica: Replica, later: Callable[[Replica], None]) -> None:
    checkpoint = replica.checkpoint()
    assert [each.file for each in checkpoint.segments] == [each.name for each in LOG[:3]]
    later(replica)
    assert judged(replica.history().compare(checkpoint)) == (3, 0, ())
    assert replica.history().reach(checkpoint.position).differences == ()


def test_log_segments_that_retention_dropped_are_counted(replica: Replica) -> None:
    checkpoint = replica.checkpoint()
    replica.grow()
    replica.built.snapshot(3, first=1)
    assert judged(replica.history().compare(checkpoint)) == (2, 1, ())
    replica.built.ship(b"", LOG[3].name, final=True)
    replica.built.snapshot(4, first=3)
    comparison = replica.history().compare(checkpoint)
    assert (judged(comparison), comparison.is_unjudged) == ((0, 3, ()), True)


def test_an_earlier_state_of_the_replica_is_noticed(replica: Replica) -> None:
    before = replica.history()
    replica.grow()
    checkpoint = replica.checkpoint()
    assert before.compare(checkpoint).differences == (
        f"holds {LOG[2].ends[0]} bytes of {LOG[2].name}, and held {len(LOG[2].data)}",
        f"lacks {LOG[3].name}",
    )
    (difference,) = before.reach(checkpoint.position).differences
    assert difference.startswith("ends at ")


def test_a_deleted_newest_object_is_noticed(replica: Replica) -> None:
    checkpoint = replica.checkpoint()
    objects = replica.builder.objects()
    del objects[max(key for key in objects if "/wal/" in key)]
    comparison = HeldHistory(client_of(objects), open_format).compare(checkpoint)
    assert comparison.differences == (f"lacks {LOG[2].name}",)


def rewritten() -> GenerationBuilder:
    """A replica of the same log, with the same lengths and other records in its second log segment."""
    builder = ReplicaBuilder()
    built = builder.add()
    built.ship_segment(LOG[0])
    built.ship_segment(make_segment(6, [1, 1, 2, 1], tag=b"o"))
    built.ship(LOG[2].data[: LOG[2].ends[0]], LOG[2].name)
    return built


def test_exchanged_bytes_are_noticed(replica: Replica) -> None:
    forged = rewritten()
    comparison = HeldHistory(forged.client, open_format).compare(replica.checkpoint())
    assert judged(comparison) == (2, 0, (f"holds other bytes of {LOG[1].name} than before",))
    forged.snapshot(2)
    comparison = HeldHistory(forged.client, open_format).compare(replica.checkpoint())
    assert comparison.differences == (f"holds other bytes of {LOG[1].name} than before",)


def test_another_log_is_noticed(replica: Replica) -> None:
    checkpoint = replica.checkpoint()
    other = ReplicaBuilder()
    built = other.add(replace(other.claim(), log="f" * 32))
    built.ship_segment(LOG[0])
    (difference,) = HeldHistory(other.client, open_format).compare(checkpoint).differences
    assert difference.startswith(f"holds log {'f' * 32} of format litelog, not log ")


def test_a_log_that_was_rewound_is_not_what_it_was(replica: Replica) -> None:
    checkpoint = replica.checkpoint()
    rewound = replica.builder.add(replica.builder.claim(Relation.DIVERGED))
    rewound.ship_segment(LOG[0], final=None, upto=2)
    history = replica.history()
    assert history.compare(checkpoint).differences == (
        f"holds {LOG[0].ends[1]} bytes of {LOG[0].name}, and held {len(LOG[0].data)}",
        f"lacks {LOG[1].name}",
        f"lacks {LOG[2].name}",
    )
    (difference,) = history.reach(checkpoint.position).differences
    assert "does not continue generation" in difference


def test_a_damaged_object_is_no_proof(replica: Replica) -> None:
    checkpoint = replica.checkpoint()
    objects = replica.builder.objects()
    key = min(key for key in objects if f"/{1:016x}/" in key)
    objects[key] = objects[key][:-20] + bytes(20)
    (difference,) = HeldHistory(client_of(objects), open_format).compare(checkpoint).differences
    assert difference.startswith(f"{LOG[1].name} cannot be read: ")
