"""A restore drill: restores a replica to a temporary folder, checks what comes out, and removes it."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from litelog.errors import CorruptionError, LitelogError
from litelog.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats import LogFormat
    from litelog.stores.replica_client import ReplicaClient


@dataclass(frozen=True, slots=True)
class DrillResult:
    """How a restore drill went."""

    bytes: int
    files: int
    records: int
    seconds: float
    """Of the restore alone."""
    compared: int | None
    """Bytes that are those of the source; None where its format alone was to judge."""
    error: str | None = None
    is_corrupt: bool = False
    """Whether the error is one of the replica's bytes."""

    def as_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        if self.error is not None:
            return f"restore drill failed: {self.error}"
        judged = (
            "its commits hold" if self.compared is None else f"{format_size(self.compared)} are those of the source"
        )
        return (
            f"restore drill: {format_size(self.bytes)} ({self.records} records, {self.files} files) "
            f"in {format_duration(self.seconds)}; {judged}"
        )


def run_drill(
    client: ReplicaClient,
    source: str | None,
    temp_dir: str | None,
    formats: Callable[[str], LogFormat],
    parallelism: int,
    show: Callable[[int, int | None], None] | None = None,
) -> DrillResult:
    """Restore the latest generation below ``temp_dir``; compare it with the log in ``source``, or have its format check
    it. The folder is removed, whatever happens. What a restore raises is in the result. ``show`` is told of the bytes
    that are restored, and of all of them."""
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
