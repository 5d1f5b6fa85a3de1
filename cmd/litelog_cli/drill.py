"""A restore drill: restores a replica to a temporary folder, checks the result, and removes it."""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, LitelogError
from litelog.units import format_count, format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats import LogFormat
    from litelog.stores.replica_client import ReplicaClient


@dataclass(frozen=True, slots=True)
class DrillResult:
    """The result of a restore drill."""

    bytes: int
    files: int
    records: int
    seconds: float
    """Duration of the restore alone."""
    compared: int | None
    """Bytes that were compared with the source; None if only the format checked them."""
    error: str | None = None
    is_corrupt: bool = False
    """Whether the error means that the replica's bytes are wrong."""

    def as_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "log_bytes": self.bytes,
            "log_segments": self.files,
            "records": self.records,
            "seconds": self.seconds,
            "compared_bytes": self.compared,
            "failure": self.error,
            "corrupt": self.is_corrupt,
        }

    def __str__(self) -> str:
        if self.error is not None:
            return f"restore drill FAILED: {self.error}"
        judged = "its commits are valid" if self.compared is None else f"{format_size(self.compared)} equal the source"
        held = f"{format_count(self.records, 'record')}, {format_count(self.files, 'file')}"
        return f"restore drill: {format_size(self.bytes)} ({held}) in {format_duration(self.seconds)}; {judged}"


def run_drill(
    client: ReplicaClient,
    source: str | None,
    temp_dir: str | None,
    formats: Callable[[str], LogFormat],
    parallelism: int,
    show: Callable[[int, int | None], None] | None = None,
) -> DrillResult:
    """Restore the latest generation below ``temp_dir``, and compare it with the log in ``source``.

    Without ``source`` the log's format checks it. The folder is removed in any case. The result holds errors of the
    restore. ``show`` is called with restored bytes and total bytes.
    """
    from litelog.restore.choose_replica import choose
    from litelog.restore.execution import restore
    from litelog.restore.history_plan import Target
    from litelog.verify.local_compare import check_log, compare_logs

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="litelog-drill-", dir=temp_dir) as folder:
        output = os.path.join(folder, "log")
        try:
            choice = choose([client], Target(), formats)
            size = choice.plan.size
            done = restore(
                client,
                choice.plan,
                output,
                log_format=choice.log_format,
                parallelism=parallelism,
                progress=None if show is None else lambda progress: show(progress.restored, size),
            )
            seconds = time.monotonic() - started
            compared = None if source is None else compare_logs(output, source, choice.log_format)
            if source is None:
                check_log(output, choice.log_format)
        except LitelogError as error:
            seconds = time.monotonic() - started
            return DrillResult(0, 0, 0, seconds, None, str(error), isinstance(error, CorruptionError))
    return DrillResult(done.bytes, done.files, done.records, seconds, compared)
