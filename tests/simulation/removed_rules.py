"""Shows that the simulation finds bugs: removes the library's rules one at a time, and simulates until a seed fails.

``python -m tests.simulation.removed_rules [NAME ...]``; each rule is removed in a copy of the library in a temporary
folder, never in the tree. The result is printed, and kept in ``.figures/removed_rules.json``.
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
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.plan import draw

ROOT = Path(__file__).parents[2]
COPIED = ("litelog", "replica_clients", "tests")
CHOSEN_FROM = 400
"""Seeds."""

FIGURES = ROOT / ".figures" / "removed_rules.json"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, a check or a sync, and how the library looks without it."""

    name: str
    file: str
    old: str
    new: str
    about: tuple[str, ...] = ("take_over", "pause", "kill")
    """Steps that it is about: the seeds whose plans have most of them for their length come first."""
    settings: tuple[str, ...] = ()
    """Settings, as ``name=value``, without which it does not matter; ``name`` alone: any but none."""


RULES = (
    # --- one writer
    Rule(
        "a takeover flag is spent once its daemon owns the replica, and ends only the claim that it met",
        "litelog/shipping/takeover.py",
        "return self._open and self._met is not None and name in self._met",
        "return self.asked",
    ),
    Rule(
        "a daemon does not claim above another owner's claim unasked",
        "litelog/shipping/ownership.py",
        "if top.owner != owner and not self._takeover.allows(top.name):",
        "if False:",
    ),
    Rule(
        "a log that was truncated during a takeover is continued",
        "litelog/shipping/ownership.py",
        'return self.begin(state, "the log does not hold the end that the predecessor came to")',
        'return self.begin(state, "the log does not hold the end that the predecessor came to", forked=True)',
        settings=("truncate",),
    ),
    Rule(
        "a generation whose first slot has a terminal without a predecessor never began",
        "litelog/reading/beginning.py",
        "return header.successor is not None and in_first_slot and not header.previous",
        "return False",
    ),
    Rule(
        "a reader passes over generations that never began",
        "litelog/reading/succession.py",
        "if not never_began(successor.first, terminal):",
        "if True:",
    ),
    Rule(
        "a claim that is taken is not this daemon's",
        "litelog/shipping/fencing.py",
        "if read_claim(client, claim.name) != claim:",
        "if False:",
    ),
    Rule(
        "a new owner closes the generations below",
        "litelog/shipping/fencing.py",
        "    for claim in below:\n",
        "    for claim in ():\n",
    ),
    Rule(
        "closing goes on below a generation that did not start",
        "litelog/shipping/fencing.py",
        "if tip.started and not claim.is_isolated:",
        "if True:",
    ),
    Rule(
        "who closes reads on when it loses a slot",
        "litelog/shipping/fencing.py",
        "        tip = read_forward(client, tip)\n    raise",
        "        return tip\n    raise",
    ),
    Rule(
        "a refused put shows whose the slot is",
        "litelog/shipping/refusal.py",
        "if header.successor is not None or header.owner != prepared.header.owner:",
        "if False:",
    ),
    Rule(
        "a restarted owner proves that no newer claim is there",
        "litelog/shipping/proof.py",
        "    if newer:\n",
        "    if False:\n",
    ),
    Rule(
        "an owner looks for a newer claim before its first snapshot",
        "litelog/shipping/ownership.py",
        "        require_newest(self._client, claim)\n        digest =",
        "        digest =",
    ),
    Rule(
        "an owner looks for a newer claim after its first snapshot",
        "litelog/shipping/ownership.py",
        "        require_newest(self._client, claim)  # a claim since may have come before the snapshot\n",
        "",
    ),
    Rule(
        "readers stay with the predecessor until its end is reached",
        "litelog/reading/generation_choice.py",
        "        if (slot.index, slot.offset) < (end.index + shift, end.offset):",
        "        if False:",
    ),
    # --- replicas that go away, and lost objects
    Rule(
        "a replica without this owner's claim is unavailable",
        "litelog/shipping/proof.py",
        "    if claim.name not in names:\n        require_claim(client, claim)\n",
        "",
        about=("root_away", "kill", "pause"),
        settings=("store=folder",),
    ),
    Rule(
        "an owner begins nothing where its newest claim is missing",
        "litelog/shipping/fencing.py",
        "if (names[-1].epoch if names else 0) < epoch:",
        "if False:",
        about=("root_away", "kill", "pause"),
        settings=("store=folder",),
    ),
    Rule(
        "a store's root is the one that held the claim",
        "litelog/shipping/ownership.py",
        "        self._root = root\n",
        "        self._root = None\n",
        about=("root_away",),
        settings=("store=folder",),
    ),
    Rule(
        "after a failure what was acknowledged is proved",
        "litelog/shipping/put_checks.py",
        "        self._in_doubt = True\n\n    def succeeded",
        "        pass\n\n    def succeeded",
        about=("lose_objects", "set_weather"),
    ),
    Rule(
        "lost objects are found",
        "litelog/shipping/proof.py",
        "        if not lost:\n            return ()\n",
        "        return ()\n",
        about=("lose_objects", "kill"),
    ),
    Rule(
        "lost log segments are gone round",
        "litelog/shipping/first_snapshot.py",
        "    return max(holes, default=None)\n",
        "    return None\n",
        about=("lose_objects", "kill"),
        settings=("truncate",),
    ),
    Rule(
        "state that is older than the replica catches up",
        "litelog/shipping/ownership.py",
        "if lost and (ahead := self.find_ahead(state)) is not None:",
        "if False:",
        about=("kill", "lose_objects"),
    ),
    # --- what is durable
    Rule(
        "a log segment is synced before it is read",
        "litelog/log/source.py",
        "                os.fdatasync(self._descriptor)\n",
        "                pass\n",
        about=("lose_power",),
        settings=("fsync=never",),
    ),
    Rule(
        "a log's folder is synced before a log segment's first byte is shipped",
        "litelog/log/source.py",
        "            os.fsync(descriptor)\n",
        "            pass\n",
        about=("lose_power",),
        settings=("fsync=never",),
    ),
    Rule(
        "state is synced before it is renamed",
        "litelog/private_files.py",
        "            os.fdatasync(opened.fileno())\n",
        "            pass\n",
        about=("lose_power",),
    ),
    Rule(
        "a failed sync is for good",
        "litelog/log/source.py",
        "        if self._sync_failure is None:\n",
        "        if True:\n",
        about=("disk_full", "lose_power"),
        settings=("fsync=never",),
    ),
    Rule(
        "only what was put is acknowledged",
        "litelog/shipping/wal_writer.py",
        "        try:\n            self._put_object(prepared)\n        except ExistsError:\n"
        "            self._resolve_refusal(prepared)\n            return True\n",
        "        try:\n            self._put_object(prepared)\n        except ExistsError:\n"
        "            self._resolve_refusal(prepared)\n            return True\n        except LitelogError:\n"
        "            pass\n",
        about=("outage", "set_weather"),
    ),
    Rule(
        "the writer syncs a log segment before the next one begins",
        "litelog/log/tail.py",
        "        self.sync()  # only the newest log segment may have a torn tail\n",
        "",
        about=("lose_power",),
        settings=("fsync=never",),
    ),
    # --- what goes
    Rule(
        "a log is truncated up to what every replica holds",
        "litelog/log/truncation.py",
        "        if segment.shipped is None:\n            break\n",
        "",
        about=("outage",),
        settings=("truncate",),
    ),
    Rule(
        "WAL segments stay for an hour after a snapshot covers them",
        "litelog/shipping/clearing.py",
        "due = covered and self._pair.clock.monotonic() >= covered[0].since + retention",
        "due = bool(covered)",
        about=("pause", "kill"),
    ),
    Rule(
        "nothing is deleted but after a put",
        "litelog/shipping/clearing.py",
        "return not self._stopped and self._was_put_within(DELETE_SECONDS)",
        "return True",
        about=("pause", "take_over"),
        settings=("retention",),
    ),
    Rule(
        "a new generation names what the source has dropped",
        "litelog/shipping/first_snapshot.py",
        "    older = _find_older(opened) if contact is not None else []\n",
        "    older: list[SnapshotEntry] = []\n",
        settings=("truncate", "snapshot_policy=keep"),
    ),
    Rule(
        "what is retained is what the window needs",
        "litelog/retention/plan.py",
        "        if needed_upto < cut:\n",
        "        if needed_upto < cut + 1:\n",
        about=("kill",),
        settings=("retention",),
    ),
    # --- what is read
    Rule(
        "a follower of a copy goes to the next generation",
        "litelog/restore/following.py",
        "        if header.successor is not None or header.sealed is not None:",
        "        if header.sealed is not None:",
    ),
    Rule(
        "a store that asks for a pause is asked again soon",
        "litelog/shipping/back_off.py",
        "return min(error.retry_after or 0.0, MAX_DELAY_SECONDS) if isinstance(error, StoreError) else 0.0",
        "return 100 * (error.retry_after or 0.0) if isinstance(error, StoreError) else 0.0",
        about=("set_weather",),
    ),
    Rule(
        "what the sealed segment stands for is the log's own bytes",
        "litelog/shipping/first_contact.py",
        "if known is not None and holds(opened, known.length, known.digest, going_on):",
        "if known is not None:",
    ),
)
"""Those of the single-writer protocol and of lost replicas first."""


def main() -> int:
    """Remove the rules that the arguments name (part of the name), or all; 1 where one could not be removed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.removed_rules")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=20, help="how many are tried for each rule")
    parser.add_argument("--seconds", default="inf", help="after which no other seed is tried for a rule")
    arguments = parser.parse_args()
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    stale = 0
    for rule in RULES:
        if arguments.names and not any(name in rule.name for name in arguments.names):
            continue
        text = (ROOT / rule.file).read_text()
        if text.count(rule.old) != 1 or rule.old == rule.new:
            print(f"STALE    {rule.name}: {rule.file} does not hold what is to be removed", flush=True)
            stale += 1
            continue
        found = _find(rule, _choose_seeds(rule, arguments.seeds), arguments.seconds)
        known[rule.name] = found
        print(f"{found or 'NOT FOUND'}\n         {rule.name}", flush=True)
        FIGURES.parent.mkdir(exist_ok=True)
        FIGURES.write_text(json.dumps(known, indent=1, sort_keys=True))
    return 1 if stale else 0


def _choose_seeds(rule: Rule, count: int) -> list[int]:
    """Those whose plans have most of what the rule is about, for their length."""

    def fits(settings: dict[str, object]) -> bool:
        wanted = (each.partition("=") for each in rule.settings)
        return all(settings[name] is not None if not value else settings[name] == value for name, _, value in wanted)

    plans = [plan for plan in map(draw, range(CHOSEN_FROM)) if fits(plan.settings)]
    plans.sort(key=lambda plan: -sum(step.do in rule.about for step in plan.steps) / (1000.0 + plan.end))
    return [plan.seed for plan in plans[:count]]


def _find(rule: Rule, seeds: list[int], seconds: str) -> str | None:
    """The first seed that fails without the rule, and what it says."""
    with tempfile.TemporaryDirectory(prefix="removed-rule-") as folder:
        for name in COPIED:
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
        changed = Path(folder) / rule.file
        changed.write_text(changed.read_text().replace(rule.old, rule.new))
        command = [sys.executable, "-m", "tests.simulation", "--seeds", ",".join(map(str, seeds)), "--seconds", seconds]
        run = subprocess.run(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": folder}, capture_output=True, text=True, check=False
        )
    match = re.search(r"^seed (\d+), .*", run.stdout, re.MULTILINE)
    if match is None:
        return run.stderr[-200:] or None
    whole = subprocess.run([*command[:3], "--seed", match[1]], cwd=ROOT, capture_output=True, check=False)
    return match[0][:200] if whole.returncode == 0 else f"FAILS WITH THE RULE, TOO: {match[0][:200]}"


if __name__ == "__main__":
    sys.exit(main())
