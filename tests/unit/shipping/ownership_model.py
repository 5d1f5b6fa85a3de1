"""A model of "One writer": an old owner and two new ones on a store with create-only puts, explored breadth first.

Each step is one request to the store, or one local decision. Any owner may take the next step, so pausing at any point
is in every path. A request may be applied and its answer be lost; an owner may crash at every step, and comes back with
its state, with an older one, or with none. An owner may stand still for a grace before it looks, or between its look
and its put, which is then late. The model keeps three facts of an object: its place, its owner, and which of two
possible contents it has.

    generation   (WAL segments and terminal by place, the ends that its first snapshot names or None, the contents of
                 its sealed segments by index: FIRST for those that its first snapshot names)
    entry        (place, what, acknowledged, pruned); what = a WAL segment's content and final, a WAL segment that
                 stands for a sealed segment of a content, or a terminal
    owner        (step, aux, content, state); state = (epoch, closed, next place, last place, last what) or None
    place        index * STRIDE + offset, counted in WAL segments

If owners seal, an owner seals before its first snapshot. At the beginning of an index, it may seal what its log holds
there before it puts the ``final`` that stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.builders.state_search import search_states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.builders.state_search import Result

STRIDE = 8
TERMINAL = 9
STANDS = 4
"""Added to the content of a ``final`` that stands for a sealed segment."""
JUST_PUT = 16
"""The aux of an owner whose last step was a put, which proves that the generation is its own."""
FIRST = -1
"""Replaces the index of a segment that goes up sealed before the first snapshot, which names it."""

DOWN, LIST, CLAIM, CLAIM_LOST, READ, FENCE, SNAPSHOT, RUN, PROVE_EPOCH, PROVE_LAST, *_LATE, GONE = range(14)
LATE_FENCE, LATE_SNAPSHOT, LATE_RUN = _LATE
LATE = {FENCE: LATE_FENCE, SNAPSHOT: LATE_SNAPSHOT, RUN: LATE_RUN}
"""The steps that are puts, each with the step of an owner that stood still before it."""
NAMES = [
    "down",
    "list",
    "claim",
    "claim-retry",
    "read-tip",
    "put-terminal",
    "snapshot",
    "run",
    "prove-epoch",
    "prove-last",
    "late put-terminal",
    "late snapshot",
    "late run",
]

Generation = tuple[Any, ...]
Owner = tuple[Any, ...]
State = tuple[tuple[Generation, ...], tuple[Owner, ...], int, int]


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol's rules, each of which can be dropped, and the bounds of the search."""

    create_only_claims: bool = True
    close: str = "started"
    """Closing stops after the newest generation that has ``started``, at a generation that is already ``ended``, after
    the ``newest``, or never (``all``)."""
    close_first: bool = True
    """Close before the first snapshot and WAL segment, not after the first WAL segment."""
    one_slot: bool = True
    """The last WAL segment determines the next slot; else its owner may continue in this index or in the next one."""
    proof: bool = True
    proof_of_start: bool = True
    """An owner without WAL segments proves whether the generation's WAL is empty or whole."""
    closer_rereads: bool = True
    """An owner that was suspended for longer than the grace reads the tip again before it puts a terminal."""
    late_terminal_rereads: bool = True
    """An owner whose terminal was late reads the tip again."""
    late_snapshot_proves: bool = True
    """An owner whose first snapshot was late looks for a newer claim after it."""
    late_put_proves: bool = True
    """An owner whose put was late proves that the generation is its own before it acknowledges the bytes."""
    late_adoption_proves: bool = True
    """The same if an earlier try of that put was taken, and its answer was lost."""
    in_order_pruning: bool = True
    check_refused: bool = True
    """After a refused WAL put, the owner reads the object in the slot; else it takes the object for its own, from a put
    whose answer was lost."""
    seals: bool = False
    seal_before_final: bool = True
    check_sealed: bool = True
    """An owner compares an existing sealed segment with the log; else it takes the segment for its own."""
    owners: int = 3
    puts: int = 2
    claims: int = 4
    crashes: int = 2
    stalls: int = 0
    """How often an owner stands still for a grace between its look and its put."""
    finals: bool = True


ORIGINAL = Rules()


def start(rules: Rules) -> State:
    """The old owner runs in generation 1, which holds nothing but its snapshot; the others have never run."""
    old = (RUN, 0, 0, (1, True, 0, None, None))
    return (((), (), ()),), (old, *(((DOWN, 0, 0, None),) * (rules.owners - 1))), rules.crashes, rules.stalls


def find(generation: Generation, place: int) -> tuple[int, int, int, int] | None:
    """The object at a place, pruned or not."""
    return next((entry for entry in generation[0] if entry[0] == place), None)


def next_place(entry: tuple[int, int, int, int]) -> int:
    """The slot after a WAL segment."""
    return (entry[0] // STRIDE + 1) * STRIDE if entry[1] & 1 else entry[0] + 1


def content_of(what: int) -> int:
    """The content of a WAL segment, or of the sealed segment that it stands for."""
    return (what & 3) >> 1


def tip(generation: Generation) -> tuple[int, bool]:
    """(the next slot, False), or (the terminal's place, True)."""
    for entry in generation[0]:
        if entry[1] == TERMINAL:
            return entry[0], True
    return (next_place(generation[0][-1]) if generation[0] else 0), False


class Model:
    """The steps that the rules allow from a state. ``flaw`` names a forbidden thing that a step did."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.steps = {
            DOWN: self._restart,
            LIST: self._list,
            CLAIM: self._claim,
            CLAIM_LOST: self._claim_again,
            READ: self._read_tip,
            FENCE: self._put_terminal,
            SNAPSHOT: self._put_snapshot,
            RUN: self._run,
            PROVE_EPOCH: self._prove_epoch,
            PROVE_LAST: self._prove_last,
            LATE_FENCE: self._put_late_terminal,
            LATE_SNAPSHOT: self._put_late_snapshot,
            LATE_RUN: self._put_late,
            GONE: self._rest,
        }

    def successors(self, state: State) -> Iterator[tuple[str, State, str | None]]:
        """(label, state, flaw) of every step of every owner, crashes included."""
        generations, owners, crashes, stalls = state
        for number, owner in enumerate(owners):
            for label, changed, moved, flaw in self.steps[owner[0]](generations, owner):
                after = [*owners[:number], moved, *owners[number + 1 :]]
                if label.startswith("prune"):
                    yield from self._grace_over(f"{number}: {label}", (changed, after, crashes, stalls), number)
                else:
                    yield f"{number}: {label}", _settled(changed, after, crashes, stalls), flaw
            if crashes and owner[0] not in (DOWN, GONE):
                after = [*owners[:number], (DOWN, 0, owner[2], owner[3]), *owners[number + 1 :]]
                yield f"{number}: crash in {NAMES[owner[0]]}", _settled(generations, after, crashes - 1, stalls), None

    def _grace_over(self, label: str, state: Any, pruner: int) -> Iterator[tuple[str, State, None]]:
        """The states after a pruning, which shows that the grace is over: all owners look again before the next put,
        or an owner had looked, and stood still since."""
        generations, owners, crashes, stalls = state
        looking = [self._after_grace(owner) for owner in owners]
        if owners[pruner][1] == JUST_PUT:
            looking[pruner] = owners[pruner]
        yield label, _settled(generations, looking, crashes, stalls), None
        for number, owner in enumerate(owners):
            if stalls and number != pruner and owner[0] in LATE:
                late = [*looking[:number], (LATE[owner[0]], *owner[1:]), *looking[number + 1 :]]
                told = f"{label}, {number} stood still in {NAMES[owner[0]]}"
                yield told, _settled(generations, late, crashes, stalls - 1), None

    def _after_grace(self, owner: Owner) -> Owner:
        """Pruning waits for the grace: an owner without a put for so long has to look again before its next one."""
        step, _, content, memory = owner
        must_prove = step in (READ, SNAPSHOT, RUN, PROVE_LAST) or (step == FENCE and self.rules.closer_rereads)
        return (PROVE_EPOCH, 0, content, memory) if must_prove and self.rules.proof else owner

    # A step takes the generations and an owner, and yields each outcome: its label, both after it, and a flaw or None.

    def _rest(self, generations: Any, owner: Owner) -> Any:
        return ()

    def _restart(self, generations: Any, owner: Owner) -> Any:
        _, _, content, memory = owner
        yield "start without state", generations, (LIST, 0, content, None), None
        if memory is None:
            return
        for remembered in {memory, *self._older(generations, memory)}:
            is_rewritten = remembered != memory or (self.rules.seals and not memory[1])
            for now in {content, 1} if is_rewritten else {content}:
                moved = (PROVE_EPOCH, 0, now, remembered)
                if not self.rules.proof:
                    moved = self._go_on(moved)
                yield f"restart with {remembered}, content {now}", generations, moved, None

    def _older(self, generations: Any, memory: Any) -> Iterator[Any]:
        epoch, closed, place = memory[:3]
        if closed:
            yield (epoch, False, 0, None, None)
            yield (epoch, True, 0, None, None)
        for entry in generations[epoch - 1][0]:
            if entry[1] != TERMINAL and next_place(entry) < place:
                yield (epoch, True, next_place(entry), entry[0], entry[1])

    def _go_on(self, owner: Owner) -> Owner:
        """The next step of an owner that knows its generation to be its own."""
        _, _, content, memory = owner
        if not memory[1] and self.rules.close_first:
            return (READ, memory[0] - 1, content, memory) if memory[0] > 1 else (SNAPSHOT, 0, content, memory)
        return (RUN, 0, content, memory) if memory[3] is not None else (SNAPSHOT, 0, content, memory)

    def _list(self, generations: Any, owner: Owner) -> Any:
        if len(generations) < self.rules.claims:
            yield "list epochs", generations, (CLAIM, len(generations) + 1, owner[2], owner[3]), None

    def _claim(self, generations: Any, owner: Owner) -> Any:
        _, epoch, content, _ = owner
        if len(generations) >= epoch:
            if self.rules.create_only_claims:
                yield "claim refused", generations, (GONE, 0, 0, None), None
            else:
                yield f"claim {epoch} over another", generations, (GONE, 0, 0, None), "P6: a claim was overwritten"
            return
        changed = (*generations, ((), None, ()))
        yield f"claim {epoch}", changed, self._claimed(epoch, content), None
        yield f"claim {epoch}, answer lost", changed, (CLAIM_LOST, epoch, content, owner[3]), None

    def _claim_again(self, generations: Any, owner: Owner) -> Any:
        yield f"claim {owner[1]} refused, it is ours", generations, self._claimed(owner[1], owner[2]), None

    def _claimed(self, epoch: int, content: int) -> Owner:
        return self._go_on((CLAIM, 0, content, (epoch, False, 0, None, None)))

    def _read_tip(self, generations: Any, owner: Owner) -> Any:
        _, target, content, memory = owner
        place, is_ended = tip(generations[target - 1])
        has_started = generations[target - 1][1] is not None
        if is_ended:
            stop = self.rules.close == "ended" or self._stops(has_started)
            yield f"{target} is ended at {place}", generations, self._below(owner, target, stop=stop), None
        else:
            moved = (FENCE, (target, place, has_started), content, memory)
            yield f"tip of {target} is {place}", generations, moved, None

    def _stops(self, has_started: bool) -> bool:
        return self.rules.close == "newest" or (self.rules.close == "started" and has_started)

    def _below(self, owner: Owner, target: int, *, stop: bool) -> Owner:
        content, memory = owner[2:]
        if target > 1 and not stop:
            return (READ, target - 1, content, memory)
        closed = (memory[0], True, *memory[2:])
        return self._go_on((READ, 0, content, closed))

    def _put_terminal(self, generations: Any, owner: Owner) -> Any:
        target, place, has_started = owner[1]
        generation = generations[target - 1]
        there = find(generation, place)
        if there is not None and not there[3]:
            yield f"terminal {target}/{place} refused", generations, (READ, target, *owner[2:]), None
            return
        flaw = "P6: written into a pruned slot" if there is not None else None
        entries = tuple(sorted((*generation[0], (place, TERMINAL, 0, 0))))
        changed = _with(generations, target, (entries, *generation[1:]))
        moved = self._below(owner, target, stop=self._stops(has_started))
        if not self.rules.one_slot and place % STRIDE:
            moved = (FENCE, (target, (place // STRIDE + 1) * STRIDE, has_started), *owner[2:])
        yield f"terminal {target}/{place}", changed, moved, flaw
        yield f"terminal {target}/{place}, answer lost", changed, owner, flaw

    def _put_late_terminal(self, generations: Any, owner: Owner) -> Any:
        """As ``_put_terminal``. The slot may have been filled and emptied meanwhile. Then no owner finds the terminal,
        as newer WAL segments follow."""
        target, place, has_started = owner[1]
        there = find(generations[target - 1], place)
        again = (READ, target, *owner[2:])
        closed = (
            again if self.rules.late_terminal_rereads else self._below(owner, target, stop=self._stops(has_started))
        )
        if there is not None and not there[3]:
            yield f"late terminal {target}/{place} refused", generations, again, None
        elif there is not None:
            yield f"late terminal {target}/{place} in an emptied slot", generations, closed, None
        else:
            for label, changed, _, flaw in self._put_terminal(generations, owner):
                yield f"late {label}", changed, closed, flaw

    def _put_snapshot(self, generations: Any, owner: Owner) -> Any:
        _, _, content, memory = owner
        epoch = memory[0]
        generation = generations[epoch - 1]
        moved = (RUN, 0, content, memory)
        if self.rules.seals:
            there = dict(generation[2]).get(FIRST)
            if there is None:
                yield self._seal(generations, owner, FIRST)
                return
            if there != content and self.rules.check_sealed:
                yield f"first sealed segment of {epoch} is of other bytes", generations, (LIST, 0, content, None), None
                return
            if there != content:
                yield (
                    f"snapshot of {epoch}",
                    generations,
                    moved,
                    "P1: a snapshot names bytes that the log does not hold",
                )
                return
        if generation[1] is not None:
            yield "snapshot is there", generations, moved, None
            return
        ends = tuple(tip(below)[0] for below in generations[: epoch - 1])
        changed = _with(generations, epoch, (generation[0], ends, generation[2]))
        yield f"snapshot of {epoch}, ends {ends}", changed, moved, None
        yield f"snapshot of {epoch}, ends {ends}, answer lost", changed, owner, None

    def _put_late_snapshot(self, generations: Any, owner: Owner) -> Any:
        for label, changed, moved, flaw in self._put_snapshot(generations, owner):
            is_proving = moved[0] == RUN and self.rules.late_snapshot_proves
            yield f"late {label}", changed, (PROVE_EPOCH, *moved[1:]) if is_proving else moved, flaw

    def _run(self, generations: Any, owner: Owner) -> Any:
        _, asked, content, memory = owner
        place = memory[2]
        yield from self._prune(generations, owner)
        choices = (0, 1) if self.rules.finals else (0,)
        for final in (asked - 1,) if 0 < asked < JUST_PUT else choices:
            if final < STANDS:
                yield from self._put(generations, owner, place, content * 2 + final, final)
        if self.rules.seals and place % STRIDE == 0 and asked in (0, JUST_PUT, STANDS + 1):
            yield from self._stand_for_sealed(generations, owner, place)
        if not self.rules.one_slot and place % STRIDE:
            yield from self._put(generations, owner, (place // STRIDE + 1) * STRIDE, content * 2, 0)

    def _seal(self, generations: Any, owner: Owner, index: int) -> Any:
        """An owner that seals again finds the object that an earlier put left, after a crash or a lost answer."""
        content, (epoch, *_) = owner[2:]
        entries, ends, sealed = generations[epoch - 1]
        changed = _with(generations, epoch, (entries, ends, tuple(sorted((*sealed, (index, content))))))
        return f"seal {epoch}/{'first' if index == FIRST else index}", changed, owner, None

    def _stand_for_sealed(self, generations: Any, owner: Owner, place: int) -> Any:
        """A log segment that was finished during a downtime goes up sealed. Then its ``final`` is put."""
        content, (epoch, *_) = owner[2:]
        index = place // STRIDE
        there = dict(generations[epoch - 1][2]).get(index)
        if there is None and self.rules.seal_before_final:
            yield self._seal(generations, owner, index)
        elif there not in (None, content) and self.rules.check_sealed:
            yield f"sealed {epoch}/{index} is of other bytes", generations, (LIST, 0, content, None), None
        else:
            yield from self._put(generations, owner, place, STANDS + content * 2 + 1, STANDS)

    def _put(self, generations: Any, owner: Owner, place: int, what: int, final: int) -> Any:
        content, memory = owner[2:]
        epoch = memory[0]
        generation = generations[epoch - 1]
        there = find(generation, place)
        if there is not None and not there[3]:
            yield self._refused(generations, owner, there)
            return
        if there is None and sum(entry[1] != TERMINAL for entry in generation[0]) >= self.rules.puts:
            return
        flaw = "P6: written into a pruned slot" if there is not None else None
        lost, acknowledged = ((place, what, done, 0) for done in (0, 1))
        moved = self._advanced(owner, acknowledged)
        if self.rules.stalls:
            moved = (moved[0], moved[1] or JUST_PUT, *moved[2:])
        yield f"put {epoch}/{place}", _put_entry(generations, epoch, acknowledged), moved, flaw
        retry = (RUN, final + 1, content, memory)
        yield f"put {epoch}/{place}, answer lost", _put_entry(generations, epoch, lost), retry, flaw

    def _put_late(self, generations: Any, owner: Owner) -> Any:
        """As ``_put``. What was put is adopted after the proof, if the generation is still the owner's."""
        _, _, content, memory = owner
        epoch, _, place, *_ = memory
        there = find(generations[epoch - 1], place)
        proving = (PROVE_EPOCH, 0, content, memory)
        if there is not None and there[3]:
            wrong = "P2: acknowledged in a slot that was emptied"
            for how, proves in (("", self.rules.late_put_proves), (", found", self.rules.late_adoption_proves)):
                late = f"late put {epoch}/{place} in an emptied slot{how}"
                yield late, generations, proving, None if proves else wrong
        elif there is not None and self.rules.late_adoption_proves and there[1] != TERMINAL:
            yield f"late put {epoch}/{place} refused", generations, proving, None
        else:
            for final in (0, 1) if self.rules.finals else (0,):
                for label, changed, moved, flaw in self._put(generations, owner, place, content * 2 + final, final):
                    is_put = find(changed[epoch - 1], place) != there
                    if is_put and self.rules.late_put_proves:
                        left = _put_entry(generations, epoch, (place, content * 2 + final, 0, 0))
                        yield f"late {label}", left, proving, flaw
                    else:
                        yield f"late {label}", changed, moved, flaw

    def _advanced(self, owner: Owner, entry: tuple[int, int, int, int]) -> Owner:
        _, _, content, memory = owner
        moved = (RUN, 0, content, (memory[0], memory[1], next_place(entry), entry[0], entry[1]))
        if not memory[1] and memory[0] > 1:
            return (READ, memory[0] - 1, *moved[2:])
        return moved

    def _refused(self, generations: Any, owner: Owner, there: tuple[int, int, int, int]) -> Any:
        content, memory = owner[2:]
        epoch = memory[0]
        place = f"{epoch}/{there[0]}"
        if there[1] == TERMINAL:
            if self.rules.check_refused:
                return f"put {place} refused: fenced", generations, (GONE, 0, 0, None), None
            return f"put {place} taken for ours", generations, owner, "P2: acknowledged what is not there"
        if content_of(there[1]) != content:
            if self.rules.check_refused:
                return f"put {place} refused: other bytes of ours", generations, (LIST, 0, content, None), None
            return f"put {place} taken for ours", generations, owner, "P2: acknowledged what is not there"
        adopted = (*there[:2], 1, 0)
        changed = _put_entry(generations, epoch, adopted)
        return f"put {place} refused: it is ours", changed, self._advanced(owner, adopted), None

    def _prune(self, generations: Any, owner: Owner) -> Any:
        """Delete one covered WAL segment, right after a WAL put that succeeded; never a generation's last one. Only if
        owners may stand still before a put, it matters how long ago that put was."""
        epoch, _, _, last, _ = owner[3]
        if last is None or owner[1] != (JUST_PUT if self.rules.stalls else 0):
            return
        for number, generation in enumerate(generations[:epoch], 1):
            segments = [entry for entry in generation[0] if entry[1] != TERMINAL]
            left = [entry for entry in segments[:-1] if not entry[3]]
            for entry in left[:1] if self.rules.in_order_pruning else left:
                pruned = (*entry[:3], 1)
                yield f"prune {number}/{entry[0]}", _put_entry(generations, number, pruned), owner, None

    def _prove_epoch(self, generations: Any, owner: Owner) -> Any:
        _, _, content, memory = owner
        if len(generations) > memory[0]:
            yield "a newer claim", generations, (GONE, 0, 0, None), None
        else:
            yield "no newer claim", generations, (PROVE_LAST, 0, content, memory), None

    def _prove_last(self, generations: Any, owner: Owner) -> Any:
        _, _, content, (epoch, _, _, last, what) = owner
        generation = generations[epoch - 1]
        if last is None:
            first = generation[0][0] if generation[0] else None
            is_mine = not (self.rules.proof_of_start and first is not None and first[3])
        else:
            there = find(generation, last)
            is_mine = there is not None and not there[3] and there[1] == what
        moved = self._go_on(owner) if is_mine else (LIST, 0, content, None)
        yield f"last one is {'there' if is_mine else 'not there'}", generations, moved, None


def _settled(generations: Any, owners: list[Owner], crashes: int, stalls: int) -> State:
    """The state after a step. The new owners are sorted, as they are alike."""
    return generations, (owners[0], *sorted(owners[1:], key=repr)), crashes, stalls


def _with(generations: Any, epoch: int, generation: Generation) -> Any:
    return (*generations[: epoch - 1], generation, *generations[epoch:])


def _put_entry(generations: Any, epoch: int, entry: tuple[int, int, int, int]) -> Any:
    entries, *others = generations[epoch - 1]
    kept = [there for there in entries if there[0] != entry[0]]
    return _with(generations, epoch, (tuple(sorted((*kept, entry))), *others))


def flaw_in(state: State, rules: Rules) -> str | None:
    """The promise that a state breaks; None if all hold."""
    generations, owners, *_ = state
    latest = max(epoch for epoch, generation in enumerate(generations, 1) if generation[1] is not None)
    ends = generations[latest - 1][1]
    for epoch, (entries, _, sealed) in enumerate(generations, 1):
        terminal = next((entry[0] for entry in entries if entry[1] == TERMINAL), None)
        limit = terminal if epoch >= latest else ends[epoch - 1]
        for entry in entries:
            stands = entry[1] != TERMINAL and entry[1] >= STANDS
            if stands and dict(sealed).get(entry[0] // STRIDE) != content_of(entry[1]):
                return f"P1: {epoch}/{entry[0]} stands for a sealed segment that is not there, or of other bytes"
            if entry[2] and (epoch > latest or (limit is not None and entry[0] >= limit)):
                return f"P2: {epoch}/{entry[0]} was acknowledged and is not in the history of {latest}"
        if rules.one_slot:
            expected = 0
            for entry in entries:
                if entry[0] != expected:
                    return f"P6: {epoch}/{entry[0]} is not in the one next slot {expected}"
                expected = -1 if entry[1] == TERMINAL else next_place(entry)
    writers = [owner[3][0] for owner in owners if owner[0] == RUN and not tip(generations[owner[3][0] - 1])[1]]
    if len(writers) > 1:
        return f"P6: generations {writers} can both be acknowledged"
    return None


def search(rules: Rules, promises: tuple[str, ...] = ("P1", "P2", "P6"), limit: int = 1_000_000) -> Result:
    """Search every reachable state up to the first flaw in ``promises``; at most ``limit`` states."""
    model = Model(rules)

    def pick(flaw: str | None) -> str | None:
        return flaw if flaw and flaw.startswith(promises) else None

    def successors(state: State) -> Iterator[tuple[str, State, str | None]]:
        return ((label, after, pick(flaw)) for label, after, flaw in model.successors(state))

    return search_states(start(rules), successors, lambda state: pick(flaw_in(state, rules)), limit)
