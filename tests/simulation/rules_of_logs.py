"""The rules of durability, deletion, reading and checking, each with its guard."""

from __future__ import annotations

from tests.simulation.rule import RemovedCode, found, missed

SYNC_OF_READER = RemovedCode("log/source", "            os.fdatasync(self._descriptor)\n", "            pass\n")
SYNC_OF_WRITER = RemovedCode(
    "log/segment_writer", "        self.sync()  # only the newest log segment may have a torn tail\n"
)
NAMES_OF_READER = RemovedCode("log/source", "            os.fsync(descriptor)\n", "            pass\n")
NAMES_OF_WRITER = RemovedCode(
    "log/segment_writer",
    "        self._write_header(first)\n        self._disk.sync_folder(self._folder)\n",
    "        self._write_header(first)\n",
)
FAILED_SYNCS_HEEDED = RemovedCode(
    "log/source",
    "        self._failed_syncs.require_none()\n        try:\n            os.fdatasync(self._descriptor)",
    "        try:\n            os.fdatasync(self._descriptor)",
)
FROZEN_BY_SYNC = RemovedCode(
    "shipping/final_error",
    "(CorruptionError, UnknownVersionError, SourceSyncError)",
    "(CorruptionError, UnknownVersionError)",
)
AWAY_FOR_FOLLOWERS = RemovedCode("reading/follower", "            require_replica(self._client, gap)\n")
AWAY_FOR_READERS = RemovedCode("reading/replica_reader", "            require_replica(self._client, lack)\n")
SPARE_LOG_SEGMENTS = RemovedCode("log/truncation", "min(replicated - 1, len(segments) - KEPT)", "len(segments) - KEPT")

DURABILITY = (
    found("a log segment is synced before it is read", "power loss in a log segment", SYNC_OF_READER),
    missed(
        "the writer syncs a log segment before the next one begins",
        "doubly guarded: see the rule with both removed",
        SYNC_OF_WRITER,
    ),
    found(
        "a log segment is synced before it is read, and by its writer before the next one begins",
        "power loss after many log segments",
        SYNC_OF_WRITER,
        SYNC_OF_READER,
    ),
    missed(
        "a log's folder is synced before a log segment's first byte is shipped",
        "doubly guarded: our own writer syncs the folder, too; see the rule with both removed",
        NAMES_OF_READER,
    ),
    found(
        "a log's folder is synced before a log segment's first byte is shipped, by its reader and its writer",
        "power loss after many log segments",
        NAMES_OF_READER,
        NAMES_OF_WRITER,
    ),
    found(
        "state is synced before it is renamed",
        "power loss after many log segments",
        RemovedCode("system/private_files", "            os.fdatasync(opened.fileno())\n", "            pass\n"),
    ),
    found(
        "a log of which a sync has failed is not read",
        "dropped pages, restart of the daemon, power loss",
        FAILED_SYNCS_HEEDED,
    ),
    found(
        "a failed sync is kept for the next run of the daemon",
        "dropped pages, restart of the daemon, power loss",
        RemovedCode("log/failed_syncs", "            self._save(self._note)\n"),
    ),
    missed("a log whose sync has failed is frozen", "doubly guarded: see the rule with both removed", FROZEN_BY_SYNC),
    found(
        "a log of which a sync has failed is not read, and is frozen",
        "dropped pages, power loss",
        FAILED_SYNCS_HEEDED,
        FROZEN_BY_SYNC,
    ),
    found(
        "only what was put is acknowledged",
        "failed put",
        RemovedCode(
            "shipping/wal_shipper",
            "        try:\n            self._put_object(encoded)\n        except ExistsError:\n"
            "            self._resolve_refusal(encoded)\n            return True\n",
            "        try:\n            self._put_object(encoded)\n        except ExistsError:\n"
            "            self._resolve_refusal(encoded)\n            return True\n        except LitelogError:\n"
            "            pass\n",
        ),
    ),
    found(
        "a daemon that is stopped syncs a last time",
        "stop",
        RemovedCode(
            "replicator/replicator",
            "                self._begin_final()\n                self._follow()\n",
            "                return\n",
        ),
    ),
)

DELETION = (
    missed(
        "a log is truncated up to what every replica holds",
        "doubly guarded: see the rule with both removed",
        SPARE_LOG_SEGMENTS,
    ),
    found(
        "a log is truncated up to what every replica holds, by the plan and by the removal",
        "outage and truncation",
        SPARE_LOG_SEGMENTS,
        RemovedCode(
            "log/truncation",
            "            if kept is not None:\n                count = number",
            "            if False:\n                count = number",
        ),
    ),
    found(
        "a log is truncated up to what all of several replicas hold",
        "outage of one of two replicas",
        RemovedCode(
            "log/replica_registry",
            "        return [read_replicated(",
            "        names = list(names)[:1]\n        return [read_replicated(",
        ),
    ),
    found(
        "WAL segments stay for an hour after a snapshot covers them",
        "owner that continues while it is closed",
        RemovedCode(
            "shipping/cleanup",
            "due = covered and self._context.clock.monotonic() >= covered[0].since + retention",
            "due = bool(covered)",
        ),
    ),
    found(
        "nothing is deleted except after a put",
        "owner that stands still while it deletes",
        RemovedCode(
            "shipping/cleanup",
            "return not self._stopped and self._was_put_within(DELETE_SECONDS)",
            "return True",
        ),
    ),
    found(
        "nothing is deleted after a WAL segment that was adopted",
        "owner that adopts what it put long ago",
        RemovedCode(
            "shipping/wal_shipper",
            "        self._encoder.rewind(own.after)\n",
            "        self._encoder.rewind(own.after)\n        self._archive.note_put()\n",
        ),
    ),
    found(
        "a new generation names what the source has dropped",
        "one snapshot is retained",
        RemovedCode(
            "shipping/initial_snapshot",
            "    older = _find_older(closed) if backlog_sealer is not None else []\n",
            "    older: list[SnapshotEntry] = []\n",
        ),
    ),
    found(
        "what is retained is what the oldest point of the window needs",
        "three snapshots are retained",
        RemovedCode(
            "retention/plan",
            "        if last_cut < cut or (is_covered and last_cut < LASTING):\n",
            "        if last_cut < cut + 1 or (is_covered and last_cut < LASTING):\n",
        ),
    ),
)

LOGS = (
    found(
        "a log's folder that was replaced is noticed",
        "log replaced",
        RemovedCode("log/follower", "if inode != (self._inode or inode):", "if False:"),
        RemovedCode(
            "log/follower",
            "if is_exact and self._names.order_of(names[0]) < self._names.order_of(self.oldest):",
            "if False:",
        ),
    ),
    found(
        "what the sealed segment stands for is the log's own bytes",
        "log rewound while its daemon was away",
        RemovedCode(
            "shipping/backlog",
            "if known is not None and self.files.holds(opened, known.length, known.digest, raise_if_stopped):",
            "if known is not None:",
        ),
    ),
    found(
        "a store that asks for a pause is asked again soon",
        "retry after",
        RemovedCode(
            "shipping/backoff",
            "return min(error.retry_after or 0.0, MAX_DELAY_SECONDS) if isinstance(error, StoreError) else 0.0",
            "return 100 * (error.retry_after or 0.0) if isinstance(error, StoreError) else 0.0",
        ),
    ),
    found(
        "all below a snapshot that was found is finished",
        "owner with an older state that finds a newer snapshot",
        RemovedCode("shipping/archiver", "        self._below = max(self._below, snapshot)\n"),
    ),
    found(
        "a log in which nothing can be read yet is read again only when it changes",
        "log rewound while its next owner chooses a claim",
        RemovedCode(
            "log/follower",
            "self._seen is None or self._sig",
            "self._seen is None or self._current is None or self._sig",
        ),
    ),
)

READING = (
    found(
        "a restore does not read what precedes dropped log segments",
        "loss in what the policy dropped",
        RemovedCode("restore/history_plan", " or last > claim.first:", ":"),
    ),
    found(
        "a follower goes to the next generation",
        "takeover from a live owner",
        RemovedCode(
            "reading/follower",
            "        return None if successor is None else GenerationFollows(successor)\n",
            "        return None\n",
        ),
    ),
    missed(
        "a follower calls nothing missing while the replica's root is away",
        "doubly guarded: its readers look, too; see the rule with both removed",
        AWAY_FOR_FOLLOWERS,
    ),
    found(
        "a follower and its reader call nothing missing while the replica's root is away",
        "root away while a reader looks for the next generation",
        AWAY_FOR_FOLLOWERS,
        AWAY_FOR_READERS,
    ),
    found(
        "a reader calls nothing missing while the replica's root is away",
        "root away while a reader enters the next generation",
        AWAY_FOR_READERS,
    ),
    found(
        "a gap is listed a second time",
        "reader that stands still for longer than the grace",
        RemovedCode("reading/contents", "LISTINGS = 2\n", "LISTINGS = 1\n"),
    ),
    found(
        "verify believes no empty listing while the replica's root is away",
        "verify while the root goes away before it lists again",
        RemovedCode("verify/anchored_store", "        if is_empty and ", "        if False and "),
    ),
    found(
        "verify looks again for what a running writer explains",
        "verify while a generation begins",
        RemovedCode("verify/execution", "        self._snapshots.refresh(subject.base, subject.name)\n"),
    ),
    found(
        "verify looks for a sealed segment that was put since its listing",
        "verify while an owner seals what it missed",
        RemovedCode(
            "verify/execution",
            "            find_sealed=partial(sealed.find, name),\n",
            "            find_sealed=lambda _index: None,\n",
        ),
    ),
)

RULES = (*DURABILITY, *DELETION, *LOGS, *READING)
