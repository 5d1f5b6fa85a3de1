"""Shows that the simulation finds bugs: removes the library's rules one at a time, and runs the plan that guards each.

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

ROOT = Path(__file__).parents[2]
COPIED = ("litelog", "replica_clients", "tests")
FIGURES = ROOT / ".figures" / "removed_rules.json"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, a check or a sync, and how the library looks without it."""

    name: str
    file: str
    old: str
    new: str
    plan: str = ""
    """The guard (``guards.GUARDS``) that is to find it."""
    why: str = ""
    """Why no plan is known that finds it."""
    also: tuple[tuple[str, str, str], ...] = ()
    """What else is removed with it: file, old, new. Of a rule that is doubly guarded, the other guard."""


RULES = (
    # --- one writer
    Rule(
        "a takeover flag is spent once its daemon owns the replica, and ends only the claim that it met",
        "litelog/shipping/takeover.py",
        "return self._open and self._met is not None and name in self._met",
        "return self.asked",
        plan="takeover flag",
    ),
    Rule(
        "a daemon does not claim above another owner's claim unasked",
        "litelog/shipping/ownership.py",
        "if top.owner != owner and not self._takeover.allows(top.name):",
        "if False:",
        plan="unasked claim",
    ),
    Rule(
        "a log that was truncated during a takeover is continued",
        "litelog/shipping/ownership.py",
        'return self.begin(state, "the log does not hold the end that the predecessor came to")',
        'return self.begin(state, "the log does not hold the end that the predecessor came to", forked=True)',
        plan="truncated during a takeover",
    ),
    Rule(
        "a generation whose first slot has a terminal without a predecessor never began",
        "litelog/reading/beginning.py",
        "return header.successor is not None and in_first_slot and not header.previous",
        "return False",
        plan="late first snapshot",
    ),
    Rule(
        "a reader passes over generations that never began",
        "litelog/reading/succession.py",
        "if not never_began(successor.first, terminal):",
        "if True:",
        why="the generation that never began is followed to its terminal, which names the same successor",
    ),
    Rule(
        "a claim that is taken is not this daemon's",
        "litelog/shipping/fencing.py",
        "if read_claim(client, claim.name) != claim:",
        "if False:",
        plan="claims at once",
    ),
    Rule(
        "a new owner closes the generations below",
        "litelog/shipping/fencing.py",
        "    for claim in below:\n",
        "    for claim in ():\n",
        plan="takeover from a live owner",
    ),
    Rule(
        "closing goes on below a generation that did not start",
        "litelog/shipping/fencing.py",
        "if tip.started and not claim.is_isolated:",
        "if True:",
        plan="abandoned before it closed",
    ),
    Rule(
        "who closes reads on when it loses a slot",
        "litelog/shipping/fencing.py",
        "        tip = read_forward(client, tip)\n    raise",
        "        return tip\n    raise",
        plan="slot lost to the owner that is closed",
    ),
    Rule(
        "a refused put shows whose the slot is",
        "litelog/shipping/refusal.py",
        "if header.successor is not None or header.owner != prepared.header.owner:",
        "if False:",
        why="any other outcome is a fork, and beginning anew meets the newer claim",
    ),
    Rule(
        "a restarted owner proves that no newer claim is there",
        "litelog/shipping/proof.py",
        "    if newer:\n",
        "    if False:\n",
        why="its next put is refused by the terminal",
    ),
    Rule(
        "an owner looks for a newer claim before its first snapshot",
        "litelog/shipping/ownership.py",
        "        require_newest(self._client, claim)\n        digest =",
        "        digest =",
        why="the look after it suffices",
    ),
    Rule(
        "an owner looks for a newer claim after its first snapshot",
        "litelog/shipping/ownership.py",
        "        require_newest(self._client, claim)  # a claim since may have come before the snapshot\n",
        "",
        plan="late first snapshot, truncation",
    ),
    Rule(
        "readers stay with the predecessor until its end is reached",
        "litelog/reading/generation_choice.py",
        "        if (slot.index, slot.offset) < (end.index + shift, end.offset):",
        "        if False:",
        plan="takeover between first snapshot and first WAL segment",
    ),
    # --- replicas that go away, and lost objects
    Rule(
        "a replica without this owner's claim is unavailable",
        "litelog/shipping/proof.py",
        "    if claim.name not in names:\n        require_claim(client, claim)\n",
        "",
        why="doubly guarded: see the rule with all five checks removed",
    ),
    Rule(
        "an owner begins nothing where its newest claim is missing",
        "litelog/shipping/fencing.py",
        "if (names[-1].epoch if names else 0) < epoch:",
        "if False:",
        why="doubly guarded: see the rule with all five checks removed",
    ),
    Rule(
        "a store's root is the one that held the claim",
        "litelog/shipping/ownership.py",
        "        self._root = root\n",
        "        self._root = None\n",
        why="the file store never makes a root a second time",
    ),
    Rule(
        "after a failure what was acknowledged is proved",
        "litelog/shipping/put_checks.py",
        "        self._in_doubt = True\n\n    def succeeded",
        "        pass\n\n    def succeeded",
        plan="lost, failure",
    ),
    Rule(
        "lost objects are found",
        "litelog/shipping/proof.py",
        "        if not lost:\n            return ()\n",
        "        return ()\n",
        plan="lost, restart",
    ),
    Rule(
        "lost log segments are gone round",
        "litelog/shipping/first_snapshot.py",
        "    return max(holes, default=None)\n",
        "    return None\n",
        why="no plan has it found that a sealed segment is lost whose log segment was truncated",
    ),
    Rule(
        "state that is older than the replica catches up",
        "litelog/shipping/ownership.py",
        "if lost and (ahead := self.find_ahead(state)) is not None:",
        "if False:",
        why="doubly guarded: see the rule with both removed",
    ),
    # --- what is durable
    Rule(
        "a log segment is synced before it is read",
        "litelog/log/source.py",
        "                os.fdatasync(self._descriptor)\n",
        "                pass\n",
        plan="power loss in a log segment",
    ),
    Rule(
        "a log's folder is synced before a log segment's first byte is shipped",
        "litelog/log/source.py",
        "            os.fsync(descriptor)\n",
        "            pass\n",
        why="not understood yet: the names seem to be durable by then",
    ),
    Rule(
        "state is synced before it is renamed",
        "litelog/private_files.py",
        "            os.fdatasync(opened.fileno())\n",
        "            pass\n",
        why="torn state counts as lost: the daemon is fenced, an operator takes over, and nothing is lost",
    ),
    Rule(
        "a failed sync is for good",
        "litelog/log/source.py",
        "        if self._sync_failure is None:\n",
        "        if True:\n",
        why="the simulated disk forgets no page whose sync has failed",
    ),
    Rule(
        "only what was put is acknowledged",
        "litelog/shipping/wal_writer.py",
        "        try:\n            self._put_object(prepared)\n        except ExistsError:\n"
        "            self._resolve_refusal(prepared)\n            return True\n",
        "        try:\n            self._put_object(prepared)\n        except ExistsError:\n"
        "            self._resolve_refusal(prepared)\n            return True\n        except LitelogError:\n"
        "            pass\n",
        plan="failed put",
    ),
    Rule(
        "the writer syncs a log segment before the next one begins",
        "litelog/log/tail.py",
        "        self.sync()  # only the newest log segment may have a torn tail\n",
        "",
        why="doubly guarded: see the rule with both removed",
    ),
    # --- what goes
    Rule(
        "a log is truncated up to what every replica holds",
        "litelog/log/truncation.py",
        "        if segment.shipped is None:\n            break\n",
        "",
        why="doubly guarded: see the rule with both removed",
    ),
    Rule(
        "WAL segments stay for an hour after a snapshot covers them",
        "litelog/shipping/clearing.py",
        "due = covered and self._pair.clock.monotonic() >= covered[0].since + retention",
        "due = bool(covered)",
        why="no plan has a successor delete the terminal while the owner stands still",
    ),
    Rule(
        "nothing is deleted but after a put",
        "litelog/shipping/clearing.py",
        "return not self._stopped and self._was_put_within(DELETE_SECONDS)",
        "return True",
        why="no plan has an owner delete after it was succeeded",
    ),
    Rule(
        "a new generation names what the source has dropped",
        "litelog/shipping/first_snapshot.py",
        "    older = _find_older(opened) if contact is not None else []\n",
        "    older: list[SnapshotEntry] = []\n",
        why="restores read what was dropped from the generation before",
    ),
    Rule(
        "what is retained is what the window needs",
        "litelog/retention/plan.py",
        "        if needed_upto < cut:\n",
        "        if needed_upto < cut + 1:\n",
        why="retention windows begin at an hour: too long for a plan of minutes",
    ),
    # --- what is read
    Rule(
        "a follower of a copy goes to the next generation",
        "litelog/restore/following.py",
        "        if header.successor is not None or header.sealed is not None:",
        "        if header.sealed is not None:",
        plan="takeover from a live owner",
    ),
    Rule(
        "a store that asks for a pause is asked again soon",
        "litelog/shipping/back_off.py",
        "return min(error.retry_after or 0.0, MAX_DELAY_SECONDS) if isinstance(error, StoreError) else 0.0",
        "return 100 * (error.retry_after or 0.0) if isinstance(error, StoreError) else 0.0",
        plan="retry after",
    ),
    Rule(
        "what the sealed segment stands for is the log's own bytes",
        "litelog/shipping/first_contact.py",
        "if known is not None and holds(opened, known.length, known.digest, going_on):",
        "if known is not None:",
        why="no step changes the log's bytes under a name that the replica knows",
    ),
    Rule(
        "a terminal names the object before it",
        "litelog/shipping/fencing.py",
        "        previous=tip.digest,\n",
        '        previous="",\n',
        plan="takeover from a live owner",
    ),
    Rule(
        "a claim that passes over a generation that began since is made again",
        "litelog/shipping/ownership.py",
        "        self._require_predecessor(claim, tips)\n",
        "",
        why="no plan has a generation begin between a claim and its put, and its log truncated",
    ),
    Rule(
        "a put whose answer was lost is adopted",
        "litelog/shipping/wal_writer.py",
        "        except ExistsError:\n            self._resolve_refusal(prepared)\n            return True\n",
        "        except ExistsError:\n            raise\n",
        plan="lost answer",
    ),
    Rule(
        "a first snapshot that an earlier try put is adopted",
        "litelog/shipping/first_snapshot.py",
        "    except ExistsError:  # from an earlier try: the same in all but, after an upgrade, its compression\n",
        "    except UnicodeError:\n",
        plan="lost answer to the first snapshot",
    ),
    # --- doubly guarded: each of the checks suffices
    Rule(
        "a log segment is synced before it is read, and by its writer before the next one begins",
        "litelog/log/tail.py",
        "        self.sync()  # only the newest log segment may have a torn tail\n",
        "",
        also=(("litelog/log/source.py", "                os.fdatasync(self._descriptor)\n", "                pass\n"),),
        plan="power loss after many log segments",
    ),
    Rule(
        "a log is truncated up to what every replica holds, by the plan and by the removal",
        "litelog/log/truncation.py",
        "        if segment.shipped is None:\n            break\n",
        "",
        also=(
            (
                "litelog/log/truncation.py",
                "            if kept is not None:\n                count = number",
                "            if False:\n                count = number",
            ),
        ),
        plan="outage and truncation",
    ),
    Rule(
        "an owner looks for a newer claim before its first snapshot and after it",
        "litelog/shipping/ownership.py",
        "        require_newest(self._client, claim)\n        digest =",
        "        digest =",
        also=(
            (
                "litelog/shipping/ownership.py",
                "        require_newest(self._client, claim)  # a claim since may have come before the snapshot\n",
                "",
            ),
        ),
        plan="late first snapshot, truncation",
    ),
    Rule(
        "nothing is begun and nothing is shipped where this owner's claim is not: five checks",
        "litelog/shipping/proof.py",
        "    if claim.name not in names:\n        require_claim(client, claim)\n",
        "",
        also=(
            (
                "litelog/shipping/proof.py",
                "    require_claim(client, claim)  # another replica may be in its place\n",
                "",
            ),
            ("litelog/shipping/fencing.py", "if (names[-1].epoch if names else 0) < epoch:", "if False:"),
            (
                "litelog/shipping/ownership.py",
                "            require_claim(self._client, claims.parse(state.claim))",
                "            pass",
            ),
            ("litelog/shipping/ownership.py", "        self._root = root\n", "        self._root = None\n"),
        ),
        plan="root away, restart",
    ),
    Rule(
        "state that is older than the replica catches up, at a start and at a gap",
        "litelog/shipping/ownership.py",
        "        ahead = CatchingUp(self._source, self._client, self._clock).find_ahead(claims.parse(state.claim), state)\n",  # noqa: E501 - as the library has it
        "        ahead = None\n",
        plan="older state",
    ),
    Rule(
        "a log's folder that was replaced is noticed",
        "litelog/log/follower.py",
        "if inode != (self._inode or inode):",
        "if False:",
        also=(
            (
                "litelog/log/follower.py",
                "if self.oldest and self._format.self_numbered and self._names.before(self.oldest):",
                "if False:",
            ),
        ),
        plan="log replaced",
    ),
    Rule(
        "what was acknowledged is proved after a pause",
        "litelog/shipping/put_checks.py",
        "if not self._in_doubt and self._clock.monotonic() - self._proved_at <= GRACE_SECONDS / 2:",
        "if not self._in_doubt:",
        why="doubly guarded: a daemon that stood still has it proved, too",
    ),
    Rule(
        "a lost snapshot has a new generation begin",
        "litelog/shipping/archive.py",
        '            raise LostSnapshotError(self._pair.source.folder, describe_lost([f"{key} is missing or damaged"]))\n',  # noqa: E501 - as the library has it
        "            self._change(snapshot=None, finished=())\n            return\n",
        plan="lost only snapshot",
    ),
    Rule(
        "a new generation relies on no sealed segment that was lost",
        "litelog/shipping/first_snapshot.py",
        "        there = sizes.get((entry.generation, entry.sealed_index)) == entry.size and entry.key not in damaged\n",  # noqa: E501 - as the library has it
        "        there = True\n",
        why="no plan has it found that a sealed segment is lost whose log segment was truncated",
    ),
    Rule(
        "a follower asks whether a newer claim has begun",
        "litelog/reading/succession.py",
        "    while newer is not None and next(iter(client.snapshots(generation(newer.generation))), None) is None:\n",
        "    while False:\n",
        why="the claim that it is given too early leads on to the right one",
    ),
    Rule(
        "verify looks again for what a running writer explains",
        "litelog/verify/execution.py",
        "        self._snapshots.refresh(subject.base, subject.name)\n",
        "",
        why="no plan has a listing come between the two puts that matter",
    ),
    Rule(
        "verify looks for a sealed segment that was put since its listing",
        "litelog/verify/execution.py",
        "            find_sealed=partial(sealed.find, name),\n",
        "            find_sealed=lambda _index: None,\n",
        why="no plan has a listing come between the two puts that matter",
    ),
)
"""Those of the single-writer protocol and of lost replicas first."""


def main() -> int:
    """Remove the rules that the arguments name (part of the name), or all; 1 where one is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.removed_rules")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--plan", help="another one than the rule's own")
    parser.add_argument("--seeds", help="FIRST-[LAST]: tries orders of events until one fails, to find a plan")
    arguments = parser.parse_args()
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    missed = 0
    for rule in RULES:
        plan = arguments.plan or rule.plan
        if arguments.names and not any(name in rule.name for name in arguments.names):
            continue
        found = _find(rule, plan, arguments.seeds) if plan else None
        known[rule.name] = found
        missed += bool(plan) and found is None
        print(f"{rule.name}\n    {found or f'NOT FOUND: {rule.why}'}", flush=True)
    FIGURES.parent.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps(known, indent=1, sort_keys=True))
    print(f"{sum(found is not None for found in known.values())} of {len(RULES)} rules found")
    return 1 if missed else 0


def _find(rule: Rule, plan: str, seeds: str | None) -> str | None:
    """What the plan says of a copy of the library without the rule; None where nothing. RuntimeError where the library
    does not hold what is to be removed."""
    with tempfile.TemporaryDirectory(prefix="removed-rule-") as folder:
        for name in COPIED:
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__"))
        for file, old, new in ((rule.file, rule.old, rule.new), *rule.also):
            changed = Path(folder) / file
            text = changed.read_text()
            if text.count(old) != 1:
                raise RuntimeError(f"{file} does not hold once what is to be removed: {old}")
            changed.write_text(text.replace(old, new))
        command = [sys.executable, "-m", "tests.simulation", "--plan", plan, *(["--seeds", seeds] if seeds else [])]
        environment = {**os.environ, "PYTHONPATH": folder}
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    match = re.search(r"^plan '.*', seed \d+, .*", run.stdout, re.MULTILINE)
    if match is None and run.returncode:
        raise RuntimeError(run.stderr)
    return match[0] if match is not None else None


if __name__ == "__main__":
    sys.exit(main())
