"""Runs simulations: ``python -m tests.simulation --seed 7``, or ``--seeds 0-99``."""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from tests.sampling import sampled
from tests.simulation.guards import GUARDS
from tests.simulation.plan import Plan, draw
from tests.simulation.scheduler import ViolationError
from tests.simulation.shrinking import shrink
from tests.simulation.substitution import Substitution
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.scheduler import Scheduler

HASHING = "PYTHONHASHSEED"
ENDLESS_SECONDS = 10.0
"""Processor time. No task takes a hundredth of it before it waits."""


def main() -> int:
    """Run the simulations that the arguments name. Returns 1 if a promise was broken."""
    arguments = _parse()
    if os.environ.get(HASHING) != "0":  # the order of sets is part of what a seed replays
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, HASHING: "0"})
    World.talks, World.talks_of_requests = arguments.talk or arguments.requests, arguments.requests
    substitution = Substitution()
    gc.freeze()  # collections then skip the imported modules
    counts: Counter[str] = Counter()
    failed: list[int] = []
    hours = 0.0
    began = time.perf_counter()
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))  # after the current seed
    for name, drawn in _plans(arguments):
        seed, plan = drawn.seed, _without_steps(drawn, arguments)
        if arguments.steps:
            print(plan.settings)
            for number, step in zip(plan.numbers, plan.steps, strict=True):
                print(f"{number:3d} {step}")
        violation, elapsed = simulate(plan, substitution, counts)
        hours += elapsed / 3600
        if violation is not None:
            failed.append(seed)
            said = f"plan '{name}', " if name else ""
            print(f"{said}seed {seed}, {elapsed:.1f} s: {violation}", flush=True)
            if arguments.shrink:
                plan = shrink(plan, str(violation), lambda smaller: str(simulate(smaller, substitution, Counter())[0]))
            kept = ",".join(map(str, plan.numbers))
            print(
                f"  replay: python -m tests.simulation {f'--plan {name!r} ' if name else ''}"
                f"--seed {seed} --keep {kept or 'none'} --steps --talk",
                flush=True,
            )
            if not arguments.go_on:
                break
        if ended or hours >= arguments.hours or time.perf_counter() - began > arguments.seconds:
            break
    wall = time.perf_counter() - began
    print(f"{hours:.1f} simulated hours in {wall:.1f} s; failed: {failed or 'none'}")
    if arguments.table:
        for what, count in sorted(counts.items()):
            print(f"{count:9d}  {what}")
    if arguments.json:
        os.makedirs(os.path.dirname(arguments.json) or ".", exist_ok=True)
        with open(arguments.json, "w", encoding="utf-8") as file:
            figures = {"hours": hours, "seconds": wall, "failed": failed, "counts": counts}
            json.dump(figures, file, indent=1, sort_keys=True)
    return 1 if failed else 0


def _plans(arguments: argparse.Namespace) -> Iterable[tuple[str, Plan]]:
    """The plans to simulate, with their names. In a plan that guards a rule, a seed only changes the order of
    events."""
    if arguments.guards:
        return [(name, GUARDS[name]) for name in sampled(list(GUARDS), arguments.one_in, "plans that guard a rule")]
    if arguments.plan is None:
        return (("", draw(seed)) for seed in _seeds(arguments))
    guard = GUARDS[arguments.plan]
    if arguments.seed is None and arguments.seeds is None:
        return [(arguments.plan, guard)]
    return ((arguments.plan, replace(guard, seed=seed)) for seed in _seeds(arguments))


def _seeds(arguments: argparse.Namespace) -> Iterable[int]:
    if arguments.seed is not None:
        return [arguments.seed]
    if arguments.seeds is None:
        return range(20)
    if "," in arguments.seeds:
        return map(int, arguments.seeds.split(","))
    first, dash, last = arguments.seeds.partition("-")
    if dash and not last:
        return count(int(first))
    return range(int(first), int(last or first) + 1)


def _without_steps(plan: Plan, arguments: argparse.Namespace) -> Plan:
    """The plan without the steps that the arguments leave out."""
    if arguments.keep is not None:
        return plan.keep({int(number) for number in arguments.keep.split(",") if number.isdecimal()})
    without = arguments.without.split(",")
    return plan.keep({number for number, step in zip(plan.numbers, plan.steps, strict=True) if step.do not in without})


def simulate(plan: Plan, substitution: Substitution, counts: Counter[str]) -> tuple[BaseException | None, float]:
    """Run a plan. Returns the broken promise, if any, and the virtual seconds that it took."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="simulation-", dir=where)
    world = World(plan, folder, substitution)
    violation: BaseException | None = None
    gc.disable()
    _watch(world.scheduler)
    try:
        world.run()
    except ViolationError as error:
        violation = error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        counts.update(world.counts)
        elapsed = world.scheduler.now
        world.scheduler.discard()
        del world
        gc.enable()
        gc.collect()
        _close_all(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return violation, elapsed


def _watch(scheduler: Scheduler) -> None:
    """End the simulation if a task computes for ENDLESS_SECONDS without a wait."""
    turns = -1

    def look(_signal: int, _frame: object) -> None:
        nonlocal turns
        task = scheduler.current
        if task is not None and scheduler.turns == turns:
            violation = ViolationError(f"P10: {task.process.name}/{task.name} computes without end")
            scheduler.fail(violation)
            raise violation
        turns = scheduler.turns

    signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, ENDLESS_SECONDS, ENDLESS_SECONDS)


def _close_all(folder: str) -> None:
    """Close the files that killed processes had open."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(folder):
                os.close(descriptor)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulates seeds, each by itself.")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--seeds", metavar="FIRST-[LAST]", help="run these seeds; 0-19 by default")
    parser.add_argument("--plan", choices=sorted(GUARDS), help="run a plan that guards a rule, not those of seeds")
    parser.add_argument("--guards", action="store_true", help="run all plans that guard a rule, each with its own seed")
    parser.add_argument("--one-in", type=int, default=1, metavar="N", help="with --guards: run a sample of them")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further seed after this time")
    parser.add_argument("--hours", type=float, default=math.inf, help="begin no seed after this many simulated hours")
    parser.add_argument("--keep", metavar="NUMBERS", help="run only these steps of the plan")
    parser.add_argument(
        "--without", default="", metavar="STEPS", help="leave out these kinds of steps: lose_objects,.."
    )
    parser.add_argument("--go-on", action="store_true", help="continue after a seed that fails")
    parser.add_argument("--shrink", action="store_true", help="leave out the steps that a failure does not need")
    parser.add_argument("--steps", action="store_true", help="print the plan")
    parser.add_argument("--talk", action="store_true", help="print the log lines of the daemons, and each step")
    parser.add_argument("--requests", action="store_true", help="print each request as well")
    parser.add_argument("--table", action="store_true", help="print how often each event happened")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
