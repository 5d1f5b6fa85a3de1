"""DueTimes agrees with a plain dictionary, and keeps nothing of entries that were removed."""

from __future__ import annotations

import math
import weakref

from hypothesis import given
from hypothesis import strategies as st

from litelog.replicator.run_state import MAX_STALE, DueTimes

TIMES = st.integers(0, 20).map(float)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), TIMES),
        st.tuples(st.just("drop"), st.integers(0, 5), TIMES),
        st.tuples(st.just("take"), st.just(0), TIMES),
    )
)


class Entry:
    """An object whose removal a test can observe."""


@given(STEPS)
def test_due_times_agree_with_a_dictionary(steps: list[tuple[str, int, float]]) -> None:
    schedule: DueTimes[int] = DueTimes()
    model: dict[int, float] = {}
    for step, entry, time in steps:
        if step == "set":
            schedule.set(entry, time)
            model[entry] = time
        elif step == "drop":
            schedule.drop(entry)
            model.pop(entry, None)
        else:
            taken = schedule.take(time)
            assert [model[each] for each in taken] == sorted(due for due in model.values() if due <= time)
            model = {each: due for each, due in model.items() if due > time}
        assert schedule.next <= min(model.values(), default=math.inf)
    assert sorted(schedule.take(math.inf)) == sorted(model)


def test_a_dropped_entry_is_removed_long_before_it_was_due() -> None:
    schedule: DueTimes[Entry] = DueTimes()
    entry = Entry()
    gone = weakref.ref(entry)
    schedule.set(entry, 3600.0)
    schedule.set(entry, 7200.0)
    schedule.drop(entry)
    del entry
    assert gone() is None


def test_a_key_that_is_set_repeatedly_is_taken_once() -> None:
    schedule: DueTimes[int] = DueTimes()
    for time in range(10_000):
        schedule.set(1, 3600.0 + time)
    assert len(schedule._times) <= MAX_STALE + 3
    assert len(schedule._at) == 1
    assert schedule.take(20_000.0) == [1]
