"""Shows that the simulation finds bugs: removes the library's rules one at a time, and runs the plan that guards each.

``python -m tests.simulation.removed_rules [NAME ...]``; each rule is removed in a copy of the library in a temporary
folder, never in the tree. The result is printed, and kept in ``.figures/removed_rules.json``. With ``--widely`` the
rules that no plan guards are tried with all plans, and with ten hours of seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation import rules_of_logs, rules_of_owners

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.rule import Rule

ROOT = Path(__file__).parents[2]
COPIED = ("litelog", "replica_clients", "tests")
FIGURES = ROOT / ".figures" / "removed_rules.json"
WIDELY = (("--guards",), ("--seeds", "0-", "--hours", "10"))

RULES: tuple[Rule, ...] = (*rules_of_owners.RULES, *rules_of_logs.RULES)
"""All rules; those of the single-writer protocol and of lost replicas come first."""


def main() -> int:
    """Remove the rules that the arguments name (by a part of the name), or all. Returns 1 if a plan does not find its
    rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.removed_rules")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--plan", help="another one than the rule's own")
    parser.add_argument("--seeds", help="FIRST-[LAST]: tries orders of events until one fails, to find a plan")
    parser.add_argument("--widely", action="store_true", help="try all plans, and seeds, where a rule has no plan")
    arguments = parser.parse_args()
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    missed = 0
    for rule in RULES:
        plan = arguments.plan or rule.plan
        if arguments.names and not any(name in rule.name for name in arguments.names):
            continue
        seeds = ["--seeds", arguments.seeds] if arguments.seeds else []
        runs = [["--plan", plan, *seeds]] if plan else [list(run) for run in WIDELY if arguments.widely]
        found = known[rule.name] = _find(rule, runs)
        missed += bool(plan) and found is None
        print(f"{rule.name}\n    {found or f'NOT FOUND: {rule.why}'}", flush=True)
    FIGURES.parent.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps(known, indent=1, sort_keys=True))
    print(f"{sum(known.get(rule.name) is not None for rule in RULES)} of {len(RULES)} rules found")
    return 1 if missed else 0


def _find(rule: Rule, runs: Sequence[Sequence[str]]) -> str | None:
    """Run simulations of a copy of the library without the rule. Returns their failure, or None.

    Raises RuntimeError if the library does not hold the code to remove.
    """
    with tempfile.TemporaryDirectory(prefix="removed-rule-") as folder:
        for name in COPIED:
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
        for removed in rule.removals:
            changed = Path(folder) / removed.file
            text = changed.read_text()
            if text.count(removed.old) != 1:
                raise RuntimeError(f"{removed.file} does not hold once what is to be removed: {removed.old}")
            changed.write_text(text.replace(removed.old, removed.new))
        for arguments in runs:
            command = [sys.executable, "-m", "tests.simulation", *arguments]
            environment = {**os.environ, "PYTHONPATH": folder}
            run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            match = re.search(r"^(plan '.*', )?seed \d+, .*", run.stdout, re.MULTILINE)
            if match is not None:
                return match[0]
            if run.returncode:
                raise RuntimeError(run.stderr)
    return None


if __name__ == "__main__":
    sys.exit(main())
