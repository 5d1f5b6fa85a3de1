"""Calls of those who wait for a change."""

from __future__ import annotations

from litelog.system.change_signal import ChangeSignal


def test_each_listener_is_called_once_a_change_until_it_is_forgotten() -> None:
    signal, calls = ChangeSignal(), []
    first, second = (lambda: calls.append("first")), (lambda: calls.append("second"))
    signal.listen(first)
    signal.listen(first)
    signal.listen(second)
    signal.notify()
    assert sorted(calls) == ["first", "second"]
    signal.forget(first)
    signal.forget(first)
    signal.notify()
    assert sorted(calls) == ["first", "second", "second"]


def test_a_listener_may_forget_itself_in_its_call() -> None:
    signal, calls = ChangeSignal(), []

    def once() -> None:
        calls.append(1)
        signal.forget(once)

    signal.listen(once)
    signal.notify()
    signal.notify()
    assert calls == [1]
