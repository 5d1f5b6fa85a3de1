"""Commits an export to an Iceberg table, each run once: the same commit sets a property of the table to the run.

pyiceberg retries a commit on top of other changes, and would not notice that another process has committed the same
run. So tables have ``commit.retry.num-retries`` 0, and after a failed commit litelog reads the table again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from litelog.errors import ConfigError
from litelog.installation import install_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from litelog.spark.jobs.manifest import Manifest
    from litelog.spark.jobs.table_file import ExportSettings

RUN, TARGET = "litelog.export.run", "litelog.export.target"

COMPACTION = "litelog.export.compaction"
"""The property of a table that names the last compaction that is in it."""

ATTEMPTS = 20
"""How often in a row a commit may fail because other writers of the table were faster."""

_FIELDS: Final = {name: f"timestamp_{name}" for name in ("date", "hour")}
"""The partition fields that an export adds, by ``partition_by``."""

_NO_RETRY: Final = {"commit.retry.num-retries": "0"}


def split_name(name: str | None) -> tuple[str, str]:
    """(the catalog, the table in it) of CATALOG.NAMESPACE.TABLE. Raises ConfigError."""
    catalog, _, rest = (name or "").partition(".")
    if not catalog or not all(rest.split(".")) or "." not in rest:
        raise ConfigError(f"table=iceberg needs the table's name as CATALOG.NAMESPACE.TABLE, not {name!r}")
    return catalog, rest


def require_iceberg() -> None:
    """Raise ConfigError if pyiceberg is missing."""
    try:
        import pyiceberg.catalog  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"table=iceberg needs pyiceberg; run: {install_command('iceberg')}") from error


def iceberg_holds(name: str, url: str, options: Mapping[str, str], run: int) -> bool:
    """Whether the files of a run of the export at ``url`` are in the Iceberg table.

    Raises ConfigError as ``commit_iceberg`` does, except for a table of another target, which has none of them.
    """
    require_iceberg()
    from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

    try:
        catalog, identifier = _open(name, options)
        table = catalog.load_table(identifier)
    except NoSuchTableError:
        return False
    except ValueError as error:
        raise ConfigError(f"Iceberg table {name}: {error}") from error
    return table.properties.get(TARGET) == _place(url) and int(table.properties.get(RUN, "0")) >= run


def commit_iceberg(
    name: str, url: str, options: Mapping[str, str], manifest: Manifest, settings: ExportSettings
) -> None:
    """Add a run's files, which are at ``url``, to the Iceberg table, unless it has them already.

    Creates a missing table. Raises ConfigError if pyiceberg or the catalog is missing, for a table of another target,
    and for a table that the files do not fit.
    """
    require_iceberg()
    from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415

    place, run = _place(url), manifest.plan.run
    try:
        catalog, identifier = _open(name, options)
        for attempt in range(ATTEMPTS):
            try:
                table = _table(catalog, identifier, settings)
                if not _is_done(table, place, run):
                    with table.transaction() as transaction:
                        paths = [f"{place}/{file.path}" for file in manifest.files]
                        transaction.add_files(paths, check_duplicate_files=False)
                        transaction.set_properties({RUN: str(run), TARGET: place})
            except CommitFailedException:
                if attempt + 1 == ATTEMPTS:
                    raise
            else:
                return
    except ValueError as error:
        raise ConfigError(f"Iceberg table {name}: {error}") from error


def current_files(name: str | None, url: str, options: Mapping[str, str]) -> set[str]:
    """The files of the export at ``url`` that the table reads, in its current partitions: their paths below ``url``.

    Files that rows were deleted from are not among them. Raises ConfigError if the table is missing or belongs to
    another export.
    """
    place = _place(url)
    table = _load(name, options)
    _is_done(table, place, 0)
    tasks = [task for task in table.scan().plan_files() if not task.delete_files]
    here = [task.file.file_path for task in tasks if task.file.spec_id == table.spec().spec_id]
    return {path.removeprefix(f"{place}/") for path in here if path.startswith(f"{place}/")}


def replace_files(
    name: str | None, url: str, options: Mapping[str, str], number: int, removed: Iterable[str], added: Iterable[str]
) -> bool:
    """Replace files of the table by others with the same rows, by one commit that records the compaction.

    Args:
        name: The table's name.
        url: The place of the export.
        options: Options of its store.
        number: The number of the compaction. A table that records it is left as it is.
        removed: Files that the table reads, as paths below ``url``.
        added: The files that replace them.

    Returns:
        Whether the table reads the new files. It does not if the table no longer reads all of ``removed``.

    Raises:
        ConfigError: As ``commit_iceberg``.
    """
    from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415

    place = _place(url)
    old, new = {f"{place}/{path}" for path in removed}, [f"{place}/{path}" for path in added]
    for attempt in range(ATTEMPTS):
        table = _load(name, options)
        _is_done(table, place, 0)
        if int(table.properties.get(COMPACTION, "0")) >= number:
            return set(new) <= {task.file.file_path for task in table.scan().plan_files()}
        held = [task.file for task in table.scan().plan_files() if task.file.file_path in old and not task.delete_files]
        if len(held) != len(old):
            return False
        try:
            _commit_replacement(table, held, new, number)
        except CommitFailedException:
            if attempt + 1 == ATTEMPTS:
                raise
        else:
            return True
    raise AssertionError("unreachable")


def _commit_replacement(table: Any, held: Iterable[Any], new: list[str], number: int) -> None:
    from pyiceberg.io.pyarrow import parquet_file_to_data_file  # noqa: PLC0415

    with table.transaction() as transaction:
        transaction.set_properties({COMPACTION: str(number), **_NO_RETRY})
        with transaction.update_snapshot().overwrite() as snapshot:
            for file in held:
                snapshot.delete_data_file(file)
            for path in new:
                snapshot.append_data_file(parquet_file_to_data_file(table.io, transaction.table_metadata, path))


def _load(name: str | None, options: Mapping[str, str]) -> Any:
    """The table. Raises ConfigError if it or the catalog is missing."""
    from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

    try:
        catalog, identifier = _open(name, options)
        return catalog.load_table(identifier)
    except (NoSuchTableError, ValueError) as error:
        raise ConfigError(f"Iceberg table {name}: {error}") from error


def _place(url: str) -> str:
    return url if "://" in url else f"file://{os.path.abspath(url)}"


def _open(name: str | None, options: Mapping[str, str]) -> tuple[Any, str]:
    """(the catalog, the table's name in it)."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415

    catalog_name, identifier = split_name(name)
    return load_catalog(catalog_name, **{f"s3.{option}": value for option, value in options.items()}), identifier


def _table(catalog: Any, identifier: str, settings: ExportSettings) -> Any:
    """The current table, without retries."""
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError  # noqa: PLC0415

    try:
        table = catalog.load_table(identifier)
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
        with suppress(TableAlreadyExistsError):
            _create(catalog, identifier, settings)
        table = catalog.load_table(identifier)
    if any(table.properties.get(key) != value for key, value in _NO_RETRY.items()):
        with table.transaction() as transaction:
            transaction.set_properties(_NO_RETRY)
    _evolve(table, settings.partition_by)
    return table


def _evolve(table: Any, partition_by: str | None) -> None:
    """Make new files partitioned by the day or hour of the timestamp, or not at all. Existing files stay."""
    ours = {field.name for field in table.spec().fields} & set(_FIELDS.values())
    wanted = _FIELDS.get(partition_by or "")
    if ours == {wanted} - {None}:
        return
    with table.update_spec() as spec:
        for name in sorted(ours - {wanted}):
            spec.remove_field(name)
        if partition_by is not None and wanted not in ours:
            _add_partition(spec, partition_by)


def _is_done(table: Any, place: str, run: int) -> bool:
    target = table.properties.get(TARGET, place)
    if target != place:
        raise ConfigError(f"the Iceberg table {'.'.join(table.name())} holds the export at {target}, not {place}")
    return int(table.properties.get(RUN, "0")) >= run


def _create(catalog: Any, identifier: str, settings: ExportSettings) -> None:
    """Create an empty table, partitioned by the day or hour of the timestamp, like the files."""
    with catalog.create_table_transaction(identifier, settings.arrow_schema(), properties=_NO_RETRY) as transaction:
        if settings.partition_by is not None:
            with transaction.update_spec() as spec:
                _add_partition(spec, settings.partition_by)


def _add_partition(spec: Any, partition_by: str) -> None:
    from pyiceberg.transforms import DayTransform, HourTransform  # noqa: PLC0415

    transforms: dict[str, Any] = {"date": DayTransform, "hour": HourTransform}
    spec.add_field("timestamp", transforms[partition_by](), _FIELDS[partition_by])
