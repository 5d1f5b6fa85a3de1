"""How an owner gets from stage to stage: where a call continues after a wait, and after a failure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import StoreError
from litelog.objects import claim as claims
from litelog.objects.layout import parse_snapshot
from litelog.shipping import stages
from litelog.shipping.stages import Stage
from litelog.shipping.state import Claimed, Running
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import start_sealing
from tests.builders.stores import CountingStore, Fault, FaultyStore
from tests.unit.shipping import ownership_model, takeover_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.builders.daemon_builder import Daemon
    from tests.builders.log_builder import LogBuilder
    from tests.builders.manual_clock import ManualClock

README = Path(stages.__file__).with_name("README.md")


def sealing_later(daemon: Daemon) -> list[Callable[[], None]]:
    """Hold the daemon's sealing tasks back until a test runs them. Returns the list of them."""
    waiting: list[Callable[[], None]] = []
    assert daemon.owner.backlog_sealer is not None
    daemon.owner.backlog_sealer._submit = waiting.append
    return waiting


def finish(waiting: list[Callable[[], None]]) -> None:
    while waiting:
        waiting.pop(0)()


def test_an_owner_that_waited_for_sealing_continues_there(log: LogBuilder, state: str, clock: ManualClock) -> None:
    for _ in range(3):
        log.roll(2)
    store = CountingStore(MemoryStore("test"))
    daemon = start_sealing(log, store, state, clock)
    waiting = sealing_later(daemon)
    assert daemon.owner.begin(None, None) is None
    assert store.put_keys == ["epochs/00000001.json"] * 2
    for _ in range(3):
        assert daemon.owner.begin(None, "a reason that is too late") is None
    assert len(store.put_keys) == 2
    finish(waiting)
    store.put_keys.clear()
    begun = daemon.owner.begin(None, None)
    assert begun is not None
    assert isinstance(begun.state, Running)
    assert [parse_snapshot(key) is not None for key in store.put_keys] == [True]
    daemon.close()


def test_an_owner_that_waits_is_resumed_where_it_waits(log: LogBuilder, state: str, clock: ManualClock) -> None:
    log.roll(2)
    store = CountingStore(MemoryStore("test"))
    daemon = start_sealing(log, store, state, clock)
    waiting = sealing_later(daemon)
    assert daemon.owner.resume() is None
    store.put_keys.clear()
    assert daemon.owner.resume() is None
    assert store.put_keys == []
    finish(waiting)
    begun = daemon.owner.resume()
    assert begun is not None
    assert isinstance(begun.state, Running)
    daemon.close()


@pytest.mark.parametrize("failing", range(3))
def test_a_failed_step_is_repeated_with_the_claim_that_was_chosen(
    log: LogBuilder, state: str, clock: ManualClock, failing: int
) -> None:
    """The puts are: the claim, the claim again, and the first snapshot."""
    store = MemoryStore("test")
    faulty = FaultyStore(store, {"put": [*[Fault.NONE] * failing, Fault.BEFORE]})
    daemon = start_sealing(log, faulty, state, clock)
    with pytest.raises(StoreError):
        daemon.owner.begin(None, None)
    saved = daemon.folder.load()
    assert saved is not None
    assert isinstance(saved, Claimed)
    begun = daemon.owner.begin(None, None)
    assert begun is not None
    assert begun.state.claim == saved.claim
    assert [claims.decode(info.key, store.open(info.key).read()).generation for info in store.list("epochs/")] == [
        saved.claim.generation
    ]
    daemon.close()


def rows() -> list[list[str]]:
    """The table of stages in the specification."""
    section = README.read_text().split("\n### Stages of an owner\n", 1)[1].split("\n#", 1)[0]
    return [
        [cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\| `.*$", section, re.MULTILINE)
    ]


def test_the_specification_has_the_stages_of_the_code_in_their_order() -> None:
    members: Any = Stage
    assert [row[0].strip("`") for row in rows()] == [member.__name__ for member in members.__args__]


@pytest.mark.parametrize(
    ("column", "model", "others"),
    [
        (3, ownership_model, {"down", "prove-epoch", "prove-last", "late put-terminal", "late snapshot", "late run"}),
        (4, takeover_model, {"down", "look", "resume", "gone"}),
    ],
)
def test_the_stages_are_the_steps_of_the_models(column: int, model: Any, others: set[str]) -> None:
    steps = list(dict.fromkeys(step for row in rows() for step in row[column].split(", ") if step))
    assert steps == [name for name in model.NAMES if name not in others]
