"""Replaces threads, randomness and stores by the simulation's own, in this process only.

Clocks are arguments of the library, so they are not replaced. These names are, in each module that has them:

- ``threading`` and ``ThreadPoolExecutor``: locks, conditions, events and pools are made in some thirty places, by the
  class that uses each. As arguments they would be a parameter of each of these classes, for this one purpose.
- ``Random``: a back-off draws from its own generator, unless the code that makes it passes one.
- ``open_writable_store``, ``find_identities`` and ``read_boot_id``: they give a daemon its stores, and the boot of its
  machine.

So the whole library runs unchanged, in any number of simulated processes.
"""

from __future__ import annotations

import concurrent.futures._base as futures
import importlib
import pkgutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import litelog
from tests.simulation.encryption import find_identities
from tests.simulation.threads import make_pool, make_threading

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.stores.object_store import ObjectStore
    from tests.simulation.scheduler import Scheduler

LEFT_OUT = ("litelog.spark", "litelog.server")
"""Modules that no simulated process runs."""

IMPORTED = (
    "litelog.replicator.wiring",
    "litelog.replicator",
    "litelog.restore.execution",
    "litelog.restore.follow",
    "litelog.reading.replica_reader",
    "litelog.verify.execution",
    "litelog.verify.scrub",
    "litelog.log.writer",
)


class Substitution:
    """Moves the library's threads and clocks from the scheduler of one simulation to that of the next."""

    def __init__(self) -> None:
        self._original: dict[tuple[str, str], object] = {}
        for package in IMPORTED:
            importlib.import_module(package)
        for found in pkgutil.walk_packages(litelog.__path__, "litelog."):
            if not found.name.startswith(LEFT_OUT):
                importlib.import_module(found.name)

    def install(self, scheduler: Scheduler, seed: int, open_store: Callable[..., ObjectStore], boot: object) -> None:
        """Run everything that the library starts from now on under ``scheduler``."""
        numbers = Random(seed)

        def make_random(*arguments: int) -> Random:
            return Random(*arguments) if arguments else Random(numbers.getrandbits(64))

        stand_ins: dict[object, object] = {
            threading: make_threading(scheduler),
            ThreadPoolExecutor: make_pool(scheduler),
            Random: make_random,
        }
        for name, module in list(sys.modules.items()):
            if module is None or not name.startswith("litelog.") or name.startswith(LEFT_OUT):
                continue
            for attribute in ("threading", "ThreadPoolExecutor", "Random"):
                self._exchange(name, attribute, stand_ins)
        setattr(futures, "threading", stand_ins[threading])  # noqa: B010 - it is a module's own
        _replace("litelog.replicator.wiring", "open_writable_store", open_store)
        _replace("litelog.replicator.wiring", "find_identities", find_identities)
        for name in ("litelog.shipping.state", "litelog.replicator.wiring"):
            _replace(name, "read_boot_id", boot)

    def _exchange(self, name: str, attribute: str, stand_ins: dict[object, object]) -> None:
        module = sys.modules[name]
        original = self._original.get((name, attribute), getattr(module, attribute, None))
        if original is not None and getattr(original, "__hash__", None) and original in stand_ins:
            self._original[name, attribute] = original
            setattr(module, attribute, stand_ins[original])


def _replace(name: str, attribute: str, value: object) -> None:
    """Replace a name of a module. Raises AttributeError if the module has no such name: it is called otherwise now."""
    module = sys.modules[name]
    getattr(module, attribute)
    setattr(module, attribute, value)
