"""Lists at the end of a run the tests that take longer than their markers say.

No test fails for it, as time depends on the machine.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK_SECONDS = 0.05
"""The processor time that a test of the fast loop should take at most."""

LISTED_SECONDS = 6 * QUICK_SECONDS
"""A test that takes longer is listed. The limit is higher, as the first test of a module also makes what the others
share."""

LONG_MARKERS = ("slow", "process", "spark")

_LONG = "tests that are longer than their markers say"


class LongTests:
    """Has each worker report at its end the long tests without a marker, and lists them."""

    def __init__(self) -> None:
        self._found: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        result = yield
        taken = time.process_time() - began
        if taken > LISTED_SECONDS and not any(map(item.get_closest_marker, LONG_MARKERS)):
            self._found[item.nodeid] = round(taken, 2)
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[_LONG] = self._found

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._found |= getattr(node, "workeroutput", {}).get(_LONG, {})

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for test, seconds in sorted(self._found.items(), key=lambda found: -found[1]):
            terminalreporter.write_line(f"{seconds} s of processor time, and not marked as slow: {test}")
