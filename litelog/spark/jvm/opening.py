"""Opens a sealed segment for Java: checks its footer, and names the frames that may hold wanted records.

``SealedObject.java`` describes the fields of the answer.
"""

from __future__ import annotations

import base64
import threading
from typing import TYPE_CHECKING, Any

from litelog.objects.frame_table import frames_of
from litelog.objects.position import epoch_of
from litelog.objects.sealed_segment import TAIL_BYTES
from litelog.reading.sealed_reader import FETCH_BYTES
from litelog.spark.jvm.conditions import RECORDS
from litelog.spark.jvm.handover import object_url
from litelog.spark.scan.sealed_reading import holds_run, open_piece, own_runs, sequence_after, wanted_runs
from litelog.spark.scan.task import open_client, open_log_format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.sealed_segment import SealedFooter
    from litelog.reading.sealed_reader import OpenedSealed
    from litelog.spark.jvm.conditions import QueriedLog
    from litelog.spark.options import Range
    from litelog.spark.scan.partitions import SealedPiece


def open_for_java(queried: QueriedLog, piece: SealedPiece) -> dict[str, Any]:
    """The URL of the piece's object, and its wanted frames in groups. Java reads each group with one request.

    Raises CorruptionError if the object is damaged, NotFoundError if it is missing, and StoreError.
    """
    log = queried.log
    log_format = open_log_format(log.format, log.pattern)
    sealed = open_piece(open_client(log.url, log.store, threading.Event()), piece, log_format)
    footer = sealed.footer
    wanted = [run for run in wanted_runs(log.range, piece, footer, log_format) if footer.frames.records[run.start]]
    url = object_url(log, piece.entry.key)
    in_file = url is not None and url.startswith("file:")
    groups = footer.frames.groups(wanted, FETCH_BYTES)
    own, read = (sum(map(len, runs)) for runs in (own_runs(piece, footer), wanted))
    return {
        "url": url,
        "groups": [_describe_group(sealed, runs, log.range, held=not in_file) for runs in groups],
        "wanted": {**queried.bounds(), "needs_key": queried.needs_key, "keys": _encoded(queried.keys)},
        "metrics": {"frames": read, "skipped": own - read, **_read(sealed)},
        "constants": {
            "log": log.name,
            "generation": log.generation,
            "epoch": epoch_of(log.generation),
            "index": piece.entry.index,
            RECORDS: 1,
        },
    }


def _encoded(keys: Sequence[bytes] | None) -> list[str] | None:
    return None if keys is None else [base64.b64encode(key).decode() for key in keys]


def _read(sealed: OpenedSealed) -> dict[str, int]:
    """The bytes and requests that reading the footer cost. A small object was read as a whole."""
    size = sealed.entry.size
    footer = size - sealed.footer.data_bytes
    if sealed.body is not None:
        return {"bytes": size, "requests": 1}
    return {"bytes": max(footer, TAIL_BYTES), "requests": 1 if footer <= TAIL_BYTES else 2}


def _describe_group(sealed: OpenedSealed, runs: Sequence[range], wanted: Range, *, held: bool) -> dict[str, Any]:
    """Adjacent runs. ``held``: whether to pass on their bytes, if they were read with the footer."""
    stored = sealed.footer.frames.stored_range(frames_of(runs))
    body = sealed.held(frames_of(runs)) if held else None
    return {
        "at": stored.start,
        "size": len(stored),
        "body": None if body is None else base64.b64encode(body).decode(),
        "runs": [_describe_run(sealed.footer, run, stored.start, wanted) for run in runs],
    }


def _describe_run(footer: SealedFooter, run: range, start: int, wanted: Range) -> dict[str, Any]:
    frames = footer.frames
    content = frames.content_range(run)
    return {
        "at": frames.starts[run.start] - start,
        "offset": content.start,
        "length": len(content),
        "first": frames.firsts[run.start],
        "next": sequence_after(footer, run),
        "records": frames.records[run.start],
        "whole": holds_run(wanted, footer, run),
        "frames": [
            {
                "size": frames.sizes[number],
                "length": frames.lengths[number],
                "crc": frames.crcs[number],
                "checksum": frames.checksums[number],
                "stored": frames.stored[number],
            }
            for number in run
        ],
    }
