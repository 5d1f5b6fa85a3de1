"""Two daemons and one replica, with the real code. At each request to the store, the other daemon may take its turn."""

from __future__ import annotations

import itertools
import shutil
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from litelog.errors import DivergedError, FencedError, StoreError
from litelog.objects.layout import Fencing
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import Generation, objects, read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.stores import CarelessStore, Fault, FaultyStore
from tests.faults.turns import Turns, TurnStore
from tests.sampling import NIGHTLY, sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore


class Play:
    """An owner that ships a log, and rivals that take over. Each has its own copy of the log."""

    def __init__(
        self,
        folder: str,
        choose: Callable[[list[int]], int],
        *,
        rivals: int = 1,
        owned: bool = True,
        fencing: Fencing = Fencing.REQUIRED,
        sealing: bool = False,
    ) -> None:
        """Start the daemons.

        ``fencing``: with isolated, the store overwrites any key. ``sealing``: daemons ship finished log segments
        sealed, when a generation begins and when the owner returns to a log that has grown."""
        self.inner = MemoryStore("play")
        self.store = self.inner if fencing is Fencing.REQUIRED else CarelessStore(self.inner)
        self.turns = Turns(choose)
        self.logs: list[LogBuilder] = []
        self.daemons: list[Daemon] = []
        self.fenced: list[bool] = []
        log = make_log(f"{folder}/log0")
        log.roll(3)
        if sealing:
            log.roll(2)
            log.roll(1)
        before = Daemon(log, self.inner, f"{folder}/state0", backlog_sealer=True) if sealing and owned else None
        if before is not None:
            before.sync()
            before.close()
            for _ in range(3):
                log.roll(2)
        for number in range(rivals + 1):
            if number:
                shutil.copytree(log.folder, f"{folder}/log{number}")
            mine = make_log(f"{folder}/log{number}")
            mine.name, mine.next, mine.texts = log.name, log.next, dict(log.texts)
            store: ObjectStore = TurnStore(self.store, self.turns)
            self.logs.append(mine)
            facts = {
                "seed": number,
                "takeover": bool(number) or not owned,
                "fencing": fencing,
                "backlog_sealer": sealing,
            }
            self.daemons.append(Daemon(mine, store, f"{folder}/state{number}", **facts))
            self.fenced.append(False)
            if before is not None and number == 0:
                self.daemons[0].acknowledged += before.acknowledged
            elif number == 0 and owned:
                self.daemons[0].sync()

    def act(self, number: int, steps: int) -> Callable[[], None]:
        """Append and sync ``steps`` times. After a fence, sync once more, which must fail."""

        def run() -> None:
            daemon, log = self.daemons[number], self.logs[number]
            for step in range(steps):
                if number == 0 or step:
                    log.append(1, size=20) if number == 0 else log.write(log.commit(20, b"rival"))
                try:
                    daemon.sync()
                except StoreError:
                    continue
                except FencedError:
                    self.fenced[number] = True
                    told = len(daemon.acknowledged)
                    with pytest.raises(FencedError):
                        daemon.sync()
                    assert len(daemon.acknowledged) == told
                    return
                except DivergedError:
                    continue

        return run

    def count_finals(self) -> int:
        """How many WAL segments stand for a sealed segment."""
        return sum("sealed" in header for one in self.look().values() for header, _, _ in one.segments)

    def judge(self, *, finished: bool = True) -> None:
        """Assert what must hold in any order of the requests. ``finished``: no request failed."""
        generations = self.look()
        if finished:
            assert all(generation.terminal for name, generation in generations.items() if name < max(generations))
        for daemon, fenced in zip(self.daemons, self.fenced, strict=True):
            held = objects(self.inner)
            daemon.log.write(daemon.log.commit(20))
            with suppress(FencedError):
                daemon.sync()
                assert not fenced
            now = objects(self.inner)
            assert {key: now[key] for key in held} == held, "overwritten"
        self.look()
        for daemon in self.daemons:
            daemon.crash()

    def look(self) -> dict[str, Generation]:
        """The generations. Each has one owner, holds all that was acknowledged, and is a prefix of its owner's log."""
        generations = read_replica(self.inner)
        for daemon in self.daemons:
            for event in daemon.acknowledged:
                generation = generations[event.header.generation]
                assert generation.claim["owner"] == event.header.owner
                assert generation.holds(event.header.index, event.header.end), "acknowledged, and not there"
            texts = daemon.log.files()
            owners = {claim.owner for claim in daemon.claims}
            for generation in generations.values():
                if generation.claim["owner"] in owners:
                    assert all(texts[name].startswith(text) for name, text in generation.files().items())
        return generations


def in_turn(first: int, until: int, then: int) -> Callable[[list[int]], int]:
    """Choose ``first`` for ``until`` requests, then the other for ``then`` requests, then the first again."""
    count = itertools.count()

    def choose(alive: list[int]) -> int:
        at = next(count)
        wanted = first if at < until or at >= until + then else 1 - first
        return wanted if wanted in alive else alive[0]

    return choose


def by_bits(bits: int, width: int) -> Callable[[list[int]], int]:
    """Choose by a bit at each of the first ``width`` points, then run one daemon after the other."""
    count = itertools.count()

    def choose(alive: list[int]) -> int:
        at = next(count)
        wanted = bits >> at & 1 if at < width else alive[0]
        return wanted if wanted in alive else alive[0]

    return choose


@pytest.mark.parametrize("first", [0, 1])
def test_a_rival_at_any_request_of_an_owner_that_seals(tmp_path: Path, first: int) -> None:
    """``first``: the daemon that begins, and is interrupted once."""
    cut = whole = 0
    for until, then in itertools.product(range(0, 36, 3), (1, 7, 40)):
        folder = tmp_path / f"{until}-{then}"
        play = Play(str(folder), in_turn(first, until, then), sealing=True)
        play.turns.run(play.act(0, 3), play.act(1, 2))
        play.judge()
        assert play.fenced != [True, True]
        finals = play.count_finals()
        cut += finals < 2
        whole += finals == 2
        shutil.rmtree(folder)
    assert cut > 2  # some interruptions come between the two
    assert whole > 2


@pytest.mark.parametrize("first", [0, 1])
def test_an_owner_and_a_rival_that_interrupt_each_other_once_and_come_back(tmp_path: Path, first: int) -> None:
    points = list(itertools.product(range(14), range(1, 16, 2)))
    for until, then in sampled(points, 6, f"interruptions, {first} first"):
        folder = tmp_path / f"{until}-{then}"
        play = Play(str(folder), in_turn(first, until, then))
        play.turns.run(play.act(0, 4), play.act(1, 2))
        play.judge()
        assert play.fenced != [True, True]
        shutil.rmtree(folder)


@pytest.mark.parametrize("owned", [False, True])
def test_all_interleavings_of_the_first_requests(tmp_path: Path, owned: bool) -> None:
    width = 7
    for bits in sampled(range(1 << width), 6, f"orders of the first requests, owned {owned}"):
        folder = tmp_path / str(bits)
        play = Play(str(folder), by_bits(bits, width), owned=owned)
        play.turns.run(play.act(0, 2), play.act(1, 2))
        play.judge()
        shutil.rmtree(folder)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("sealing", [False, True])
@pytest.mark.parametrize("rivals", [1, 2])
def test_interleavings_by_chance(tmp_path: Path, rivals: int, sealing: bool) -> None:
    fenced = stood_for = 0
    seeds = sampled(range(50 if sealing else 150), 6, f"interleavings of {rivals} rivals, sealing {sealing}")
    for seed in seeds:
        folder = tmp_path / str(seed)
        play = Play(str(folder), Random(seed).choice, rivals=rivals, owned=seed % 3 > 0, sealing=sealing)
        play.turns.run(*(play.act(number, 3 if number else 20) for number in range(rivals + 1)))
        play.judge()
        fenced += sum(play.fenced)
        stood_for += play.count_finals() > 0
        shutil.rmtree(folder)
    assert sealing or not stood_for
    if NIGHTLY:  # few seeds may have none
        assert fenced > len(seeds) / 5  # daemons do meet the fence
        assert stood_for > len(seeds) / 10 or not sealing


@pytest.mark.parametrize("sealing", [False, True])
def test_interleavings_by_chance_with_lost_answers(tmp_path: Path, sealing: bool) -> None:
    lost = 0
    seeds = sampled(range(50 if sealing else 150), 6, f"interleavings with lost answers, sealing {sealing}")
    for seed in seeds:
        folder = tmp_path / str(seed)
        play = Play(str(folder), Random(seed).choice, owned=sealing and seed % 2 > 0, sealing=sealing)
        faults = {"put": ([Fault.BEFORE, Fault.AFTER], 0.25)}
        faulty = FaultyStore(play.inner, rates=faults, seed=seed)
        for daemon in play.daemons:
            assert isinstance(daemon.store, TurnStore)
            daemon.store.inner = faulty
        play.turns.run(play.act(0, 6), play.act(1, 6))
        faulty.enabled = False
        lost += faulty.injected["put", Fault.AFTER]
        play.judge(finished=False)
        shutil.rmtree(folder)
    assert lost > (len(seeds) * (1 if sealing else 2 / 3) if NIGHTLY else 0)


@pytest.mark.parametrize("owned", [False, True])
def test_isolated_owners_never_mix_in_any_order_of_their_first_requests(tmp_path: Path, owned: bool) -> None:
    """The store refuses nothing. Only its owner writes a generation, which holds all that the owner acknowledged."""
    width, together = 7, 0
    orders = sampled(range(1 << width), 6, f"orders of isolated owners' first requests, owned {owned}")
    for bits in orders:
        folder = tmp_path / str(bits)
        play = Play(str(folder), by_bits(bits, width), owned=owned, fencing=Fencing.ISOLATED)
        play.turns.run(play.act(0, 2), play.act(1, 2))
        play.judge(finished=False)
        together += len(play.look()) == 2 and not any(play.fenced)
        shutil.rmtree(folder)
    assert together > (len(orders) / 7 if NIGHTLY else 0)  # in some orders both daemons write


@pytest.mark.parametrize("rivals", [1, 2])
def test_isolated_owners_never_mix_by_chance_and_with_lost_answers(tmp_path: Path, rivals: int) -> None:
    both = 0
    seeds = sampled(range(100), 6, f"isolated owners with {rivals} rivals")
    for seed in seeds:
        folder = tmp_path / str(seed)
        play = Play(str(folder), Random(seed).choice, rivals=rivals, owned=seed % 3 > 0, fencing=Fencing.ISOLATED)
        faulty = FaultyStore(play.store, rates={"put": ([Fault.BEFORE, Fault.AFTER], 0.2)}, seed=seed)
        for daemon in play.daemons:
            assert isinstance(daemon.store, TurnStore)
            daemon.store.inner = faulty
        play.turns.run(*(play.act(number, 6) for number in range(rivals + 1)))
        faulty.enabled = False
        play.judge(finished=False)
        both += sum(bool(generation.segments) for generation in play.look().values()) > 1
        shutil.rmtree(folder)
    assert both > (len(seeds) / 2 if NIGHTLY else 0)
