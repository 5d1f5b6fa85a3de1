"""The rules of one writer, of replicas that disappear, and of objects that a store loses, each with its guard."""

from __future__ import annotations

from tests.simulation.rule import RemovedCode, found, missed

FIRST_LOOK = RemovedCode(
    "shipping/ownership", "        require_newest(self._client, claim)\n        try:\n", "        try:\n"
)
SECOND_LOOK = RemovedCode(
    "shipping/ownership",
    "        require_newest(self._client, claim)  # a newer claim may have come before the snapshot\n",
)
CLAIM_IN_PROOF = RemovedCode(
    "shipping/proof", "    if claim.name not in names:\n        require_claim(client, claim)\n"
)
NEWER_IN_PROOF = RemovedCode("shipping/proof", "    if newer:\n", "    if False:\n")
NEWEST_EPOCH = RemovedCode("shipping/claiming", "if (names[-1].epoch if names else 0) < epoch:", "if False:")
ROOT_OF_CLAIM = RemovedCode(
    "shipping/ownership", "        self._root = root or Rootless()\n", "        self._root = Rootless()\n"
)
PROOF_IN_TIME = RemovedCode(
    "shipping/ownership_guard",
    "if not self._in_doubt and self._clock.monotonic() - self._proved_at <= GRACE_SECONDS / 2:",
    "if not self._in_doubt:",
)
LOOKS_OF_ISOLATED = RemovedCode(
    "shipping/ownership_guard",
    "if self._claim.is_isolated and self._clock.monotonic() - self._looked_at >= LOOK_SECONDS:",
    "if False:",
)
PAUSE_NOTICED = RemovedCode(
    "replicator/replicator", "if now - self._last_turn > TURN_SECONDS + PAUSE_SECONDS:", "if False:"
)

THIEVES_AND_SIGNERS = (
    found(
        "verify looks at the versions of objects",
        "stolen newest WAL segment",
        RemovedCode("verify/execution", "        check_versions(kept_versions(store), run.isolated, findings)\n"),
    ),
    found(
        "verify continues after an object that cannot be decrypted",
        "overwritten WAL segment, encrypted",
        RemovedCode(
            "verify/wal",
            "        except CorruptObjectError as error:  # it cannot be decrypted\n",
            "        except ZeroDivisionError as error:\n",
        ),
    ),
    found(
        "in another generation, an owner continues the newest checkpoint of the replica, not that of its state folder",
        "owners that sign in turns",
        RemovedCode(
            "shipping/checkpoint_writer",
            "if kept is not None and kept.checkpoint.position.generation == self._claim.generation:",
            "if kept is not None:",
        ),
    ),
    found(
        "checkpoints of a log that was rewound begin its history again",
        "log rewound between two checkpoints",
        RemovedCode(
            "shipping/checkpoint_content",
            "            if claim.relation is not Relation.CONTINUES or claim.predecessor is None or claim.merges:\n",
            "            if claim.predecessor is None:\n",
        ),
    ),
    found(
        "an earlier try of a checkpoint is adopted, and nothing else is",
        "kill at a checkpoint",
        RemovedCode(
            "shipping/checkpoint_writer",
            "if found is None or found.checkpoint.key != signer.public or not _continues(before, found):",
            "if True:",
        ),
    ),
)

ONE_WRITER = (
    found(
        "an owner whose first snapshot names something else by now claims again",
        "first snapshot put before the former owner seals",
        RemovedCode(
            "shipping/ownership", "        except SnapshotConflictError:\n", "        except ZeroDivisionError:\n"
        ),
    ),
    found(
        "a takeover flag is spent once its daemon owns the replica",
        "takeover flag",
        RemovedCode(
            "shipping/takeover",
            "return self._open and self._met is not None and name in self._met",
            "return self.requested",
        ),
    ),
    found(
        "a takeover flag ends only the claim that its daemon met",
        "failed start with the flag",
        RemovedCode(
            "shipping/takeover",
            "return self._open and self._met is not None and name in self._met",
            "return self._open",
        ),
    ),
    found(
        "a daemon does not claim above another owner's claim unasked",
        "unasked claim",
        RemovedCode(
            "shipping/ownership",
            "if top.owner != owner and (own is None or own < top.name) and not self._takeover.allows(top.name):",
            "if False:",
        ),
    ),
    found(
        "a log that was truncated during a takeover is continued",
        "truncated during a takeover",
        RemovedCode(
            "shipping/ownership",
            'Cause("the log does not hold the end that the predecessor came to")',
            'Cause("the log does not hold the end that the predecessor came to", forked=True)',
        ),
    ),
    found(
        "a claim is made again whose predecessor shipped more while the log was truncated",
        "truncated between look and claim",
        RemovedCode(
            "shipping/ownership", "if not self._predecessors.is_current(claim, tips, stage.cause):", "if False:"
        ),
    ),
    found(
        "a generation whose first slot has a terminal without a predecessor never began",
        "late first snapshot",
        RemovedCode(
            "objects/chain",
            "return header.successor is not None and in_first_slot and not header.previous",
            "return False",
        ),
    ),
    found(
        "a reader skips generations that never began",
        "diverged generation that never began",
        RemovedCode("reading/successors", "if not never_began(successor.first, terminal):", "if True:"),
    ),
    found(
        "a generation that diverged counts once it holds what the log still shares with its predecessor",
        "log rewound, kill before its beginning is shipped",
        RemovedCode(
            "reading/latest", "    if shared is None:\n        return True\n", "    if True:\n        return True\n"
        ),
    ),
    found(
        "a reader takes a first snapshot only once no newer claim may end its generation",
        "diverged generation with a late snapshot",
        RemovedCode(
            "reading/successors",
            "return not claim.is_isolated and find_newer(client, claim) is not None",
            "return False",
        ),
    ),
    found(
        "a follower asks whether a newer claim has begun",
        "claim that is long not begun",
        RemovedCode(
            "reading/successors",
            "    while newer is not None and next(iter(client.snapshots(newer.generation)), None) is None:\n",
            "    while False:\n",
        ),
    ),
    found(
        "a claim that is taken is not this daemon's",
        "claims at once",
        RemovedCode("shipping/claiming", "if read_claim(client, claim.name) != claim:", "if False:"),
    ),
    found(
        "a store has to refuse the second put of a claim",
        "store that accepts each put",
        RemovedCode(
            "shipping/claiming",
            '        raise NotCreateOnlyError(claim.key, "a second create-only put was not refused")\n',
            "        pass\n",
        ),
    ),
    found(
        "an unknown store is tried with simultaneous puts",
        "store that lets several win",
        RemovedCode("shipping/ownership", "            self._try_store()\n", "            pass\n"),
    ),
    found(
        "a new owner closes the generations below",
        "takeover from a live owner",
        RemovedCode("shipping/claiming", "    for claim in below:\n", "    for claim in ():\n"),
    ),
    found(
        "closing continues below a generation that did not start",
        "abandoned before it closed",
        RemovedCode("shipping/claiming", "if tip.started and not claim.is_isolated:", "if True:"),
    ),
    found(
        "who closes reads on when it loses a slot",
        "slot lost to the owner that is closed",
        RemovedCode(
            "shipping/claiming",
            "        tip = read_tip(claim) if is_late else read_forward(client, tip)\n",
            "        return tip\n",
        ),
    ),
    found(
        "a terminal names the object before it",
        "takeover from a live owner",
        RemovedCode("shipping/claiming", "previous=tip.digest, ", 'previous="", '),
    ),
    found(
        "who puts a terminal knows what the generation holds that it ended",
        "generation that holds a first snapshot alone",
        RemovedCode(
            "reading/generations",
            "return replace(self, slot=terminal.position, digest=self.digest or terminal.previous, terminal=terminal)",
            "return GenerationEnd(terminal.position, self.last, self.digest or terminal.previous, terminal)",
        ),
    ),
    found(
        "who closes sees a first snapshot that came after its listing",
        "first snapshot that comes while its generation is closed",
        RemovedCode(
            "reading/generations",
            "snapshots = listing.snapshots or ((claim.first,) if tip.started else ())",
            "snapshots = listing.snapshots",
        ),
    ),
    missed(
        "a refused put shows whose the slot is",
        "the owner adopts the terminal, finds another chain after it, begins again, and meets the newer claim",
        RemovedCode(
            "shipping/wal_shipper",
            "if header.successor is not None or header.owner != encoded.header.owner:",
            "if False:",
        ),
    ),
    found(
        "a restarted owner proves that no newer claim is there",
        "restart after a takeover, log at rest",
        NEWER_IN_PROOF,
    ),
    found("an isolated owner looks for a newer claim", "isolated takeover", LOOKS_OF_ISOLATED),
    found(
        "a follower passes over an isolated generation that never began",
        "isolated owner that ends its generation, and never begins",
        RemovedCode(
            "reading/successors",
            "return find_overtaking(client, claim) if lists and leaves_isolated and successor.is_isolated else None",
            "return None",
        ),
    ),
    found(
        "a restarted owner proves that no newer claim is there, or looks for one later",
        "isolated takeover, restart",
        NEWER_IN_PROOF,
        LOOKS_OF_ISOLATED,
    ),
    found(
        "an owner looks for a newer claim before its first snapshot",
        "owner that stands still before it looks",
        FIRST_LOOK,
    ),
    found("an owner looks for a newer claim after its first snapshot", "late first snapshot, truncation", SECOND_LOOK),
    found(
        "an owner looks for a newer claim before its first snapshot and after it",
        "late first snapshot, truncation",
        FIRST_LOOK,
        SECOND_LOOK,
    ),
    found(
        "readers stay with the predecessor until its end is reached",
        "takeover between first snapshot and first WAL segment",
        RemovedCode(
            "reading/latest",
            "        if (slot.index, slot.offset) < (end.index + shift, end.offset):",
            "        if False:",
        ),
    ),
    found(
        "a put whose answer was lost is adopted",
        "lost answer",
        RemovedCode(
            "shipping/wal_shipper",
            "        except ExistsError:\n            self._resolve_refusal(encoded)\n            return True\n",
            "        except ExistsError:\n            raise\n",
        ),
    ),
    found(
        "a first snapshot that an earlier try put is adopted",
        "lost answer to the first snapshot",
        RemovedCode(
            "shipping/initial_snapshot",
            "    except ExistsError:  # from an earlier try: the same, except for its compression after an upgrade\n",
            "    except UnicodeError:\n",
        ),
    ),
)

REPLICAS_THAT_GO_AWAY = (
    found(
        "an owner with an older state proves its claim before it believes that nothing follows",
        "older state, and root away while the owner looks what it has shipped",
        RemovedCode(
            "shipping/proof",
            "            require_claim(self._client, state.claim)  # a root that is away seems to hold nothing\n",
            "            pass\n",
        ),
    ),
    missed(
        "a replica without this owner's claim is unavailable",
        "doubly guarded: see the rule with all five checks removed",
        CLAIM_IN_PROOF,
    ),
    missed(
        "an owner begins nothing where its newest claim is missing",
        "doubly guarded: see the rule with all five checks removed",
        NEWEST_EPOCH,
    ),
    missed(
        "a store's root is the one that held the claim",
        "the file store never makes a root a second time",
        ROOT_OF_CLAIM,
    ),
    found(
        "nothing is begun and nothing is shipped where this owner's claim is not: five checks",
        "root away, restart",
        CLAIM_IN_PROOF,
        RemovedCode("shipping/proof", "    require_claim(client, claim)  # another replica may be mounted instead\n"),
        NEWEST_EPOCH,
        RemovedCode(
            "shipping/ownership",
            "            require_claim(self._client, state.claim)",
            "            pass",
        ),
        ROOT_OF_CLAIM,
    ),
    found(
        "after a failure what was acknowledged is proved",
        "lost, failure",
        RemovedCode(
            "shipping/ownership_guard",
            "        self._in_doubt = True\n\n    def succeeded",
            "        pass\n\n    def succeeded",
        ),
    ),
    found("what was acknowledged is proved after a pause", "lost, pause", PROOF_IN_TIME, PAUSE_NOTICED),
    found(
        "a put that stood still is acknowledged only after a proof",
        "owner with an older state that stands still before it puts",
        RemovedCode(
            "shipping/ownership_guard",
            "is_late = self._clock.monotonic() - self._checked_at > GRACE_SECONDS / 2",
            "is_late = False",
        ),
    ),
    missed(
        "what a put that stood still left is adopted only after a proof",
        "the simulated store is asked once for each put, and after a lost answer the next sync begins with a proof; S3 "
        "completes an upload in parts again (test_replica.py and ownership_model.py find it)",
        RemovedCode("shipping/wal_shipper", "        self._guard.adopts()\n"),
    ),
    found(
        "a closing owner that stood still before its terminal looks again",
        "takeover that stands still before its terminal",
        RemovedCode("shipping/claiming", "        if is_put and not is_late:\n", "        if is_put:\n"),
    ),
    found(
        "a proof counts from the moment before it",
        "owner with an older state that stands still after its proof",
        RemovedCode(
            "shipping/ownership_guard",
            "self._proved_at = self._looked_at = self._checked_at = proved_at",
            "self._proved_at = self._looked_at = self._checked_at = context.clock.monotonic()",
        ),
    ),
    found(
        "lost objects are found",
        "lost, restart",
        RemovedCode("shipping/proof", "        if not lost:\n            return ()\n", "        return ()\n"),
    ),
    found(
        "a proof looks at all WAL segments since the newest snapshot, and not only at the last one",
        "lost, failure, not the newest",
        RemovedCode(
            "shipping/proof",
            "[*_find_lost_last(client, state), *_find_lost_before(client, state, snapshot)]",
            "[*_find_lost_last(client, state)]",
        ),
    ),
    found(
        "what a check finds is lost has a new generation begin",
        "lost, check",
        RemovedCode(
            "verify/scrub", "            if result.damaged and self._on_harm is not None:\n", "            if False:\n"
        ),
    ),
    found(
        "a lost snapshot has a new generation begin",
        "lost only snapshot",
        RemovedCode(
            "shipping/archiver",
            '            raise LostSnapshotError(self._context.source.folder, describe_lost([f"{key} is missing or damaged"]))\n',  # noqa: E501 - as the library has it
            "            self._state = replace(self._state, snapshot=None, finished=())\n            return\n",
        ),
    ),
    found(
        "lost log segments are gone round",
        "lost sealed segment that the log dropped",
        RemovedCode("shipping/initial_snapshot", "    return max(holes, default=None)\n", "    return None\n"),
    ),
    found(
        "a new generation relies on no sealed segment that was lost",
        "lost sealed segment",
        RemovedCode(
            "shipping/initial_snapshot",
            "        there = sizes.get((entry.generation, entry.sealed_index)) == entry.size and entry.key not in damaged\n",  # noqa: E501 - as the library has it
            "        there = True\n",
        ),
    ),
    missed(
        "state that is older than the replica catches up at a start",
        "doubly guarded: see the rule with both removed",
        RemovedCode(
            "shipping/ownership", "if lost and (ahead := self.proof.find_ahead(state)) is not None:", "if False:"
        ),
    ),
    found(
        "state that is older than the replica catches up, at a start and at a gap",
        "older state",
        RemovedCode(
            "shipping/proof",
            "        ahead = CatchingUp(self._context).find_ahead(state)\n",
            "        ahead = None\n",
        ),
    ),
)

RULES = (*ONE_WRITER, *REPLICAS_THAT_GO_AWAY, *THIEVES_AND_SIGNERS)
