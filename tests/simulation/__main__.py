"""Runs simulations: ``python -m tests.simulation --seed 7``, or ``--seeds 0-99``."""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace

from tests.simulation.plan import Plan, draw
from tests.simulation.scheduler import ViolationError
from tests.simulation.substitution import Substitution
from tests.simulation.world import World

HASHING = "PYTHONHASHSEED"


def main() -> int:
    """Simulate what the arguments say; 1 where a promise was broken."""
    arguments = _parse()
    if os.environ.get(HASHING) != "0":  # the order of sets is part of what a seed replays
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], {**os.environ, HASHING: "0"}
        )
    substitution = Substitution()
    World.talks = arguments.talk or arguments.requests
    World.talks_of_requests = arguments.requests
    first, _, last = arguments.seeds.partition("-")
    seeds = [arguments.seed] if arguments.seed is not None else range(int(first), int(last or first) + 1)
    without = frozenset(filter(None, arguments.without.split(",")))
    counts: Counter[str] = Counter()
    failed: list[int] = []
    hours = 0.0
    began = time.perf_counter()
    for seed in seeds:
        plan = draw(seed, without)
        if arguments.keep is not None:
            kept = {int(number) for number in arguments.keep.split(",") if number}
            plan = replace(plan, steps=tuple(step for at, step in enumerate(plan.steps) if at in kept))
        if arguments.steps:
            print(plan.settings)
            for number, step in enumerate(plan.steps):
                print(f"{number:3d} {step}")
        violation, elapsed = simulate(plan, substitution, counts)
        hours += elapsed / 3600
        if violation is not None:
            failed.append(seed)
            print(f"seed {seed}, {elapsed:.1f} s: {violation}", flush=True)
            if not arguments.go_on:
                break
        if arguments.seconds and time.perf_counter() - began > arguments.seconds:
            break
    wall = time.perf_counter() - began
    print(f"{hours:.1f} simulated hours in {wall:.1f} s; failed: {failed or 'none'}")
    if arguments.table:
        for what, count in sorted(counts.items()):
            print(f"{count:9d}  {what}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(
                {"hours": hours, "seconds": wall, "failed": failed, "counts": counts}, file, indent=1, sort_keys=True
            )
    return 1 if failed else 0


def simulate(plan: Plan, substitution: Substitution, counts: Counter[str]) -> tuple[BaseException | None, float]:
    """Run a plan; what promise was broken, if any, and how many seconds it took in virtual time."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="simulation-", dir=where)
    world = World(plan, folder, substitution)
    violation: BaseException | None = None
    gc.disable()
    try:
        world.run()
    except ViolationError as error:
        violation = error
    finally:
        counts.update(world.counts)
        elapsed = world.scheduler.now
        world.scheduler.discard()
        del world
        gc.enable()
        gc.collect()
        _close_all(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return violation, elapsed


def _close_all(folder: str) -> None:
    """Close what killed processes had open."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(folder):
                os.close(descriptor)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="0-19")
    parser.add_argument("--without", default="")
    parser.add_argument("--keep")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--go-on", action="store_true")
    parser.add_argument("--talk", action="store_true")
    parser.add_argument("--requests", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
