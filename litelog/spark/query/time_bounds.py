"""The times that a condition bounds, as Arrow itself tells: so that what lies outside of them need not be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.spark.options import Range

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
"""Microseconds since 1970."""

PROBES = 32
"""Times that are asked about at once."""


def time_bounds(where: Any, schema: Any) -> Range:
    """Between which timestamps all records lie that a pyarrow Expression over ``schema`` may hold for; no bound where
    Arrow finds none, or where timestamps may be null, as the schema says, and it may hold for such a row."""
    import pyarrow  # noqa: PLC0415 - an extra
    from pyarrow import compute  # noqa: PLC0415 - an extra

    field, kind = compute.field("timestamp"), schema.field("timestamp").type

    def none_until(times: Sequence[int]) -> list[bool]:
        return _never(where, [field <= pyarrow.scalar(time, kind) for time in times], schema)

    def none_since(times: Sequence[int]) -> list[bool]:
        return _never(where, [field >= pyarrow.scalar(-time, kind) for time in times], schema)

    if schema.field("timestamp").nullable and not _never(where, [field.is_null()], schema)[0]:
        return Range()
    before, behind = _search(none_until), _search(none_since)
    since = None if before is None else min(before + 1, HIGHEST)
    return Range(since=since, until=None if behind is None else -behind)


def _search(never: Callable[[Sequence[int]], list[bool]]) -> int | None:
    """The highest time for which ``never`` holds, which it does up to some time; None where for none."""
    low, high = LOWEST + 1, HIGHEST
    if not never([low])[0]:
        return None
    while low < high:
        step = max(1, (high - low) // PROBES)
        times = [*[*range(low + step, high, step)][:PROBES], high]
        holds = [time for time, found in zip(times, never(times), strict=True) if found]
        fails = [time for time in times if time not in holds]
        low, high = max([low, *holds]), min([high + 1, *fails]) - 1
    return low


def _never(where: Any, known: Sequence[Any], schema: Any) -> list[bool]:
    """Whether the condition holds for no record of which ``known`` is known; asked as datasets prune their files."""
    from pyarrow import dataset, fs  # noqa: PLC0415 - an extra

    names = [str(number) for number in range(len(known))]
    made = dataset.FileSystemDataset.from_paths(
        names,
        schema=schema,
        format=dataset.IpcFileFormat(),
        filesystem=fs.SubTreeFileSystem("/", fs.LocalFileSystem()),
        partitions=list(known),
    )
    left = {fragment.path for fragment in made.get_fragments(filter=where)}
    return [name not in left for name in names]
