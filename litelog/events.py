"""What a log line says beside its message, one way for all; and which of many failures are worth a line."""

from __future__ import annotations

EVENT = "event"
LOG = "log"
REPLICA = "replica"
POSITION = "position"
NAMED = (LOG, REPLICA, POSITION)
"""The fields that say where something happened."""

EVENTS = {
    # shipping
    "generation-begins": "A generation became this daemon's to write.",
    "diverged": "The log does not hold what was shipped of it: a new generation begins.",
    "objects-lost": "A replica lost what was acknowledged: a new generation begins, of all that the log still holds.",
    "objects-unrecoverable": "The log does not hold what a replica lost: a default restore begins after it.",
    "state-caught-up": "The state was older than the replica: what this daemon had put after it was adopted.",
    "sync-failed": "A sync failed; it is tried again.",
    "recovered": "A sync succeeded again.",
    "fenced": "Shipping has ended: another owner writes there.",
    "frozen": "Shipping has ended: bytes are not what they should be.",
    "refused": "Shipping has ended: what was asked for cannot be.",
    "fencing-isolated": "A replica where nothing stops another daemon is opened.",
    "file-passed-over": "A file in the log's folder is no log segment.",
    "file-too-late": "A log segment appeared that sorts before what is shipped: it is not shipped.",
    "predecessor-damaged": "A generation that another owner left is damaged.",
    # sealed segments, snapshots, retention
    "sealing-failed": "Sealing, or a snapshot, failed; it is tried again, and shipping goes on.",
    "sealed-from-wal": "A sealed segment was made of WAL segments, as its log segment is gone.",
    "sealed-segment-damaged": "A sealed segment is damaged; what it holds is looked for elsewhere.",
    "snapshot-damaged": "A snapshot is damaged; an older one is taken.",
    "snapshot-replaced": "The newest snapshot is not the one that was kept: the next is made from it.",
    "covered-deleted": "WAL segments that a snapshot covers were deleted.",
    "delete-refused": "The store does not allow deletions; it is said once.",
    "pruned": "What retention frees was deleted.",
    "prune-failed": "Pruning failed; it is tried again.",
    "truncated": "Log segments that every replica has were removed at the source.",
    "not-truncated": "Truncation failed, or waits for a replica; it is tried again.",
    # verification
    "verified": "All of a replica was verified.",
    "anomaly": "Verification found something that was not known before.",
    "verify-failed": "Verification could not be done; it is tried again.",
    "state-not-kept": "What verification found could not be saved.",
    "state-lost": "A file in the state folder is not what was saved there: it is treated as lost.",
    "state-closed": "A state folder was open to other users; it no longer is.",
    # logs that come and go
    "log-refused": "A log was found that cannot be replicated as the configuration says.",
    "not-looked": "A folder of logs could not be looked into; it is tried again.",
    "not-opened": "A log could not be opened; it is tried again, unless it was refused.",
    "let-go": "A log is replicated no longer.",
    "not-closed": "What is kept of a log could not be saved when it was closed.",
    "descriptor-limit": "There are hardly enough file descriptors for so many logs.",
    # the process
    "signal": "A signal to end has come.",
    "reloaded": "The configuration was read again, and is in force.",
    "reload-partial": "What changed in some keys of it is in force from the next start on.",
    "reload-failed": "The configuration was not read again.",
    "listening": "The HTTP service listens.",
    "not-listening": "It does not, and replication goes on without.",
    "http-ended": "It has ended by an error.",
    "token-refused": "The token file cannot be used; no token is accepted until it can.",
    "status-failed": "The daemon's own status could not be had; it is tried again, and health reports how old it is.",
    "measuring-failed": "The logs' folders could not be looked at for the lag.",
    "heartbeat-failed": "The heartbeat URL could not be called.",
    "heartbeat-answered": "It was answered again.",
    "notify-failed": "The service manager could not be told.",
    "credentials-failed": "Credentials could not be had; they are looked up again.",
    "store-asks-to-wait": "A store asks to be left alone (Retry-After) before the next try. The wait is limited.",
    "upload-not-aborted": "Parts of an upload that failed may be left in the store.",
    "failed": "The command failed.",
    "nothing-to-do": "There was nothing to do.",
    "progress": "How far a long command is.",
    # reading and restoring
    "restoring": "A restore begins.",
    "not-resumed": "A restore cannot use what an earlier one left, and reads it again.",
    "planned-again": "Objects of its plan went away, and it was planned again.",
    "passed-over": "A replica cannot be restored from.",
    "donor-failed": "A replica could not help out with what another one lost.",
    "claim-damaged": "A claim of such a replica is damaged.",
    "substitute-damaged": "What was to take the place of a damaged object is damaged, too.",
    "mended": "What an object had lost came from elsewhere.",
    "following": "A restored copy is kept up to date from now on.",
    "followed": "It is no longer, and was so up to a position.",
    "follow-failed": "Following met an error that may pass.",
    "gap": "An object is missing, or late.",
    # Spark
    "data-lost": "Data is missing, and failOnDataLoss=false says to go on.",
    "nothing-yet": "A log that a pattern names has only begun: it is read without.",
    "malformed": "A commit was left out, as mode says.",
    "malformed-total": "How many a task left out.",
    "store-failed": "A stream's request failed; it is tried again.",
    "task-failed": "A task of Spark's raised what the command ends with.",
    "published": "What was written became visible.",
    "not-discarded": "What was written in vain could not be removed.",
}
"""Every event that a log line may be of, and what it means. The names stay, for those who count and alert."""

REMINDER_FAILURES = 64
"""After how many failures in a row it is said again, besides after 1, 2, 4, 8, ...: every half an hour, or sooner."""


def fields(
    event: str,
    *,
    log: str | None = None,
    replica: str | None = None,
    position: object = None,
    **more: str | int | float | bool | None,
) -> dict[str, object]:
    """``extra`` for a call of ``logging``: fields that are None are left out.

    ``event``: a name that stays, for those who count and alert. ``log``: the log's folder. ``replica``: its URL as its
    client spells it, without secrets. ``position``: a Position, or text. ``more``: the event's own.
    """
    said = {EVENT: event, LOG: log, REPLICA: replica, POSITION: None if position is None else str(position), **more}
    return {name: value for name, value in said.items() if value is not None}


def is_worth_saying(failures: int) -> bool:
    """Whether so many failures in a row are told: not each of them."""
    return failures & (failures - 1) == 0 or failures % REMINDER_FAILURES == 0
