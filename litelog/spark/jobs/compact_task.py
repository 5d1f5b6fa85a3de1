"""A task of a compaction: writes one file with the rows of several, and, in a plain Parquet table, swaps them.

Readers that list folders do not read manifests. So while a task swaps files, a file that is not Parquet is among them.
Such a reader then ends with an error, instead of returning rows twice or not at all. The new file is put before the
old ones are deleted, under a name that sorts after theirs. So a reader whose listing missed the new file does not find
an old one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NotFoundError, StoreError
from litelog.spark.jobs.compactions import GroupReplacement, is_replaced, replace_group
from litelog.spark.jobs.manifest import ExportedFile
from litelog.spark.jobs.table_file import READ_BYTES, FileBody, TableFile

if TYPE_CHECKING:
    from litelog.spark.jobs.compactions import FileGroup
    from litelog.spark.jobs.table_file import ExportSettings
    from litelog.stores.object_store import ObjectStore

MARK = ".is-being-compacted.parquet"

MARK_TEXT = (
    b"litelog is replacing files of this folder by one with the same rows: read it again in a moment.\n"
    b"If this file stays, that process has died: run the compaction again, which completes it.\n"
)


@dataclass(frozen=True, slots=True)
class GroupCompaction:
    """Replaces one group of files. It may run several times, also at the same time."""

    number: int
    at: int
    group: FileGroup
    settings: ExportSettings
    swaps: bool
    """Whether the files themselves are the table. Otherwise the table's metadata decides, and old files stay."""

    @property
    def mark(self) -> str:
        """The file that tells readers of the folder about the swap."""
        return self.group.path.removesuffix(".parquet") + MARK

    def run(self, store: ObjectStore) -> ExportedFile | None:
        """Write the new file, and swap the files in a plain table. Returns None if it was done or given up already.

        Raises CorruptObjectError if the rows are not those of the manifests, and StoreError.
        """
        if is_replaced(store, self.number, self.at):
            return None
        with tempfile.TemporaryDirectory(prefix="litelog-compact-") as folder:
            path = os.path.join(folder, "new")
            try:
                made = self._merge(store, folder, path)
            except NotFoundError:
                if is_replaced(store, self.number, self.at):
                    return None
                raise
            if self.swaps:
                store.put(self.mark, [MARK_TEXT], create_only=False)
            store.put(made.path, FileBody(path), create_only=False)
        if self.swaps:
            old = tuple(file.path for file in self.group.files)
            replace_group(store, self.number, self.at, GroupReplacement(old, (made,)))
            store.delete(old)
            store.delete([self.mark])
        return made

    def _merge(self, store: ObjectStore, folder: str, path: str) -> ExportedFile:
        from pyarrow import ArrowInvalid, Table, parquet  # noqa: PLC0415 - an extra

        output: TableFile | None = None
        for file in self.group.files:
            old = os.path.join(folder, "old")
            with store.open(file.path) as source, open(old, "wb") as copy:
                shutil.copyfileobj(source, copy, READ_BYTES)
            try:
                with parquet.ParquetFile(old) as held:
                    if held.metadata.num_rows != file.rows:
                        raise CorruptObjectError(file.path, "number of rows", file.rows, held.metadata.num_rows)
                    for batch in held.iter_batches():
                        table: Any = Table.from_batches([batch])
                        output = output or TableFile(path, table.schema, self.settings)
                        output.add(table)
            except ArrowInvalid as error:
                raise CorruptObjectError(file.path, f"Parquet: {error}") from error
            except OSError as error:
                raise StoreError("read", file.path, str(error)) from error
        assert output is not None  # a group has files, and a file has rows
        output.close()
        first = self.group.files[0]
        size = os.path.getsize(path)
        last = max(file.last for file in self.group.files)
        return ExportedFile(self.group.path, output.rows, size, first.first, last, dict(first.partition))
