"""The fields of log lines in addition to the message, and the choice of the failures that are logged."""

from __future__ import annotations

EVENT = "event"
LOG = "log"
REPLICA = "replica"
POSITION = "position"
NAMED = (LOG, REPLICA, POSITION)
"""The fields that say where an event happened."""

EVENTS = {
    # shipping
    "generation-begins": "This daemon began a generation, or took one over.",
    "diverged": "The log no longer holds what was shipped: a new generation begins.",
    "objects-lost": "A replica lost acknowledged objects: a new generation begins, with all that the log still holds.",
    "objects-unrecoverable": "The log no longer holds what a replica lost: a default restore begins after it.",
    "state-caught-up": "The state was older than the replica: the objects that this daemon had put since were adopted.",
    "log-awaited": "A log's folder does not exist yet, or holds no log segment; it is synced when it does. At the "
    "daemon's end: it never appeared.",
    "watermark-missing": "The file with a log's watermark does not exist: nothing is shipped until it does.",
    "side-file-skipped": "A side file of a log cannot be read, or there are too many: it is not replicated.",
    "replicas-not-listed": "A place could not be listed for the logs of a folder: the other replicas' logs are taken.",
    "live-failed": "The live view of a log could not be read; it will be retried.",
    "live-ended": "A flaw ended the live view of a log; replication continues.",
    "sync-failed": "A sync failed; it will be retried.",
    "recovered": "A sync succeeded again.",
    "fenced": "Shipping has ended: another owner writes there.",
    "frozen": "Shipping has ended: bytes are damaged.",
    "refused": "Shipping has ended: the configuration cannot be carried out.",
    "fencing-isolated": "A replica was opened whose store does not keep another daemon from writing.",
    "file-skipped": "A file in the log's folder is not a log segment; it is skipped.",
    "file-too-late": "A log segment appeared that sorts before the shipped ones; it is not shipped.",
    "predecessor-damaged": "A generation that another owner left is damaged.",
    # sealed segments, snapshots, retention
    "sealing-failed": "Sealing, or a snapshot, failed; it will be retried, and shipping continues.",
    "checkpoint-failed": "Writing a checkpoint failed; it will be retried, and shipping continues.",
    "checkpoint-unusual": "A checkpoint has an unexpected number or key.",
    "sealed-from-wal": "A sealed segment was made from WAL segments, as its log segment is gone.",
    "sealed-segment-damaged": "A sealed segment is damaged; its bytes are read from another source.",
    "snapshot-damaged": "A snapshot is damaged; an older one is used.",
    "snapshot-replaced": "The newest snapshot is not the one in the state; the next snapshot is made from it.",
    "covered-deleted": "WAL segments that a snapshot covers were deleted.",
    "delete-refused": "The store does not allow deletions; this is logged once.",
    "pruned": "Retention deleted objects.",
    "prune-failed": "Pruning failed; it will be retried.",
    "truncated": "Log segments that every replica holds were removed at the source.",
    "not-truncated": "Truncation failed, or waits for a replica; it will be retried.",
    # verification
    "verified": "All of a replica was verified.",
    "anomaly": "Verification found a new anomaly.",
    "verify-failed": "A verification failed; it will be retried.",
    "locks-extended": "Locks of objects that the replica needs were extended.",
    "locks-not-extended": "Locks could not be extended; it will be retried.",
    "state-not-kept": "The result of a verification, or a failed sync of the log, could not be saved.",
    "state-lost": "A file in the state folder differs from what was saved; it is treated as lost.",
    "state-closed": "A state folder was open to other users; it no longer is.",
    # logs that come and go
    "log-refused": "A log was found that cannot be replicated as configured.",
    "folder-unreadable": "A folder of logs could not be listed; it will be retried.",
    "not-opened": "A log could not be opened; it will be retried, unless it was refused.",
    "log-removed": "A log is no longer replicated.",
    "not-closed": "The state of a log could not be saved when it was closed.",
    "descriptor-limit": "The limit of file descriptors is low for the number of logs.",
    # the process
    "starting": "The daemon starts; the line has its version, its logs and replicas, and where its state is.",
    "signal": "The daemon received a signal to end.",
    "final-sync": "The final sync has ended; the line has the number of replicas that hold all of their log.",
    "shipped-all": "With --once: all that the log held is in a replica.",
    "reloaded": "The configuration was read again, and is in effect.",
    "reload-partial": "Some changed keys take effect only at the next start.",
    "reload-failed": "The configuration was not read again.",
    "listening": "The HTTP service listens.",
    "not-listening": "The HTTP service cannot listen; replication continues without it.",
    "http-ended": "The HTTP service ended with an error.",
    "certificate-refused": "The renewed certificate cannot be used. The previous one stays in use.",
    "token-refused": "The token file cannot be used; no token is accepted until it can.",
    "status-failed": "The daemon could not collect its status; it will be retried, and health reports its age.",
    "measuring-failed": "The logs' folders could not be read to measure the lag.",
    "heartbeat-failed": "The heartbeat URL could not be called.",
    "heartbeat-answered": "The heartbeat URL answered again.",
    "notify-failed": "The service manager could not be notified.",
    "credentials-failed": "Credentials could not be obtained; they will be looked up again.",
    "store-asks-to-wait": "A store asks to wait (Retry-After) before the next attempt. The wait is limited.",
    "upload-not-aborted": "Parts of a failed upload may be left in the store.",
    "failed": "The command failed.",
    "nothing-printed": "The requested part of the log has no record yet.",
    "nothing-to-do": "There was nothing to do.",
    "progress": "The progress of a long command.",
    "walking": "The number of generations that a command is about to read.",
    # reading and restoring
    "restoring": "A restore begins.",
    "not-resumed": "A restore cannot use the files of an earlier one, and reads them again.",
    "planned-again": "Planned objects disappeared, and the restore was planned again.",
    "replica-skipped": "A replica cannot be restored from.",
    "restore-failed": "One log of several could not be restored.",
    "records-gone": "Records that a consumer would get next are gone everywhere; it continues after them.",
    "source-away": "A place of a log cannot be read: its records are read from another place meanwhile.",
    "source-back": "A place of a log can be read again.",
    "journal-gap": "Records of a journal are missing; reading continues after them.",
    "fallback-failed": "A replica could not supply what another one lost.",
    "claim-damaged": "A claim of a replica that should supply lost bytes is damaged.",
    "fallback-damaged": "The replacement of a damaged object is damaged, too.",
    "repaired": "Lost bytes were replaced from another source.",
    "following": "A restored copy is kept up to date from now on.",
    "followed": "A restored copy is no longer kept up to date; the line has the last position.",
    "follow-failed": "Following met a temporary error.",
    "copying": "A copy of one or several replicas is kept up to date from now on.",
    "copy-failed": "A replica could not be copied. A copy that is kept up to date tries again.",
    "mirroring": "A mirror of a served log is kept up to date from now on.",
    "mirror-failed": "A mirror met an error that may pass; it tries again.",
    "mirror-falls-back": "A mirror cannot reach its daemon: it follows a replica of the log meanwhile.",
    "mirror-lost": "No mirror has what a writer appended: the writer waits longer, or appends without a mirror.",
    "mirror-back": "A mirror has what it lacked: the writer waits for mirrors again.",
    "answer-broken-off": "An answer over HTTP ended early, and its form has no place for the reason: the line has it.",
    "mirror-not-recorded": "A daemon cannot record where a mirror is: truncation may not wait for it.",
    "mirror-forked": "A mirror could not be continued: it was renamed, and a new mirror begins.",
    "gap": "An object is missing, or late.",
    # Spark
    "data-lost": "Data is missing; reading continues, as failOnDataLoss is false.",
    "nothing-yet": "A log that a pattern names has no data yet; it is left out.",
    "malformed": "A malformed commit was skipped, as the option mode asks.",
    "malformed-total": "The number of malformed commits that a task skipped.",
    "store-failed": "A stream's request failed; it will be retried.",
    "task-failed": "A Spark task raised the error that the command ends with.",
    "published": "Written data became visible.",
    "already-written": "A write stated a version that the log already holds, and was discarded.",
    "not-discarded": "The data of a failed write could not be removed.",
    "stream-lag": "How far a streaming query is behind in a log.",
    "no-columnar-reader": "A Spark session could not compile the columnar reader: Python reads.",
}
"""Every event of a log line, and its meaning. The names are stable, for counts and alerts."""

REMINDER_FAILURES = 64
"""The failures 1, 2, 4, 8, ... in a row are logged, and so is each multiple of this number. With delays of at most 30
seconds between attempts, that is a line in about half an hour."""


def fields(
    event: str,
    *,
    log: str | None = None,
    replica: str | None = None,
    position: object = None,
    **more: str | int | float | bool | None,
) -> dict[str, object]:
    """The ``extra`` argument for a call of ``logging``, without fields that are None.

    ``event``: a stable name, for counts and alerts. ``log``: the log's folder. ``replica``: the URL as its client
    gives it, without secrets. ``position``: a Position, or text. ``more``: fields that only this event has.
    """
    message = {EVENT: event, LOG: log, REPLICA: replica, POSITION: None if position is None else str(position), **more}
    return {name: value for name, value in message.items() if value is not None}


def is_worth_logging(failures: int) -> bool:
    """Whether to log this number of failures in a row."""
    return failures & (failures - 1) == 0 or failures % REMINDER_FAILURES == 0
