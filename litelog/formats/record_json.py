"""Records as JSON values: the form of ``litelog cat --json``, and of a log that is read over HTTP."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from litelog.units import format_iso

if TYPE_CHECKING:
    from collections.abc import Collection

    from litelog.formats.columns import Record


def record_fields(record: Record, names: Collection[str] | None = None) -> dict[str, object]:
    """The fields of a record, and the columns of its format. The timestamp is ISO 8601 in UTC. Bytes are in the form of
    ``json_bytes``. ``names``: the only ones that are wanted; None: all."""
    fields: dict[str, object] = {}
    if names is None or "sequence" in names:
        fields["sequence"] = record.sequence
    if names is None or "timestamp" in names:
        fields["timestamp"] = None if record.timestamp is None else format_iso(record.timestamp)
    if names is None or "key" in names:
        fields["key"] = json_bytes(record.key)
    if names is None or "value" in names:
        fields["value"] = None if record.is_null else json_bytes(record.value)
    for name, value in (record.extra or {}).items():
        if names is None or name in names:
            fields[name] = [_json_item(item) for item in value] if isinstance(value, list) else value
    return fields


def _json_item(item: object) -> object:
    """An item of a list: bytes, or a pair of a text and bytes."""
    if isinstance(item, tuple):
        key, value = item
        return {"key": key, "value": json_bytes(value)}
    return json_bytes(item) if isinstance(item, bytes) else item


def json_bytes(value: bytes | None) -> str | dict[str, str] | None:
    """Bytes for JSON: text if they are UTF-8, else ``{"base64": ...}``; None for None."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
