"""Converts a configuration back to its written form: keys in kebab-case, values with units, secrets masked."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit

from litelog.config.checked_model import Model, kebab
from litelog.config.field_types import Before, BeforeAsWritten
from litelog.config.values import read_age, read_bytes, read_seconds
from litelog.stores.registry import MASK, redact

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.config.checked_model import ModelField

SHOWN_OPTIONS = frozenset(
    {"region", "endpoint", "profile", "path-style", "storage-class", "checksum", "sse", "ca-bundle"}
    | {"connect-timeout", "read-timeout", "connections", "host", "port", "username"}
)
"""The options of replica clients that are not secret. Any other may be, since third parties write clients, too."""

_DURATIONS = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def written(model: Model, *, exact: bool = False) -> dict[str, Any]:
    """The keys and values of ``model``, without those that are None. ``exact``: seconds and bytes as numbers."""
    values = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if value is not None:
            values[kebab(name)] = _value(name, value, None if exact else _reader(field))
    return values


def _value(name: str, value: Any, reader: object) -> Any:
    if name in _SPELLED:
        return _SPELLED[name](value)
    if isinstance(value, Model):
        return written(value, exact=reader is None)
    if isinstance(value, tuple):
        return [_value("", each, reader) for each in value]
    if reader in (read_age, read_seconds, read_bytes):
        return _size(value) if reader is read_bytes else _duration(value)
    plain = value.value if isinstance(value, Enum) else value
    return redact(plain) if isinstance(plain, str) else plain


def _callable_url(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}/{MASK}"  # anyone who knows the path may call it


def _options(options: dict[str, Any]) -> dict[str, Any]:
    return {key: _option(key, option) for key, option in options.items()}


def _option(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return dict.fromkeys(value, MASK)
    if key.replace("_", "-") not in SHOWN_OPTIONS:
        return MASK
    return redact(value) if isinstance(value, str) else value


def _reader(field: ModelField) -> object:
    """The function that parses a field's text, and so implies the number's unit; ``_PLAIN`` if there is none."""
    annotations = [field.annotation]
    while annotations:
        each = annotations.pop()
        if isinstance(each, Before | BeforeAsWritten):
            if each.read in (read_age, read_seconds, read_bytes):
                return each.read
        else:
            annotations += [*get_args(each), *getattr(each, "__metadata__", ())]
    return _PLAIN


_PLAIN = object()
_SPELLED: dict[str, Callable[[Any], Any]] = {"options": _options, "heartbeat_url": _callable_url}


def _duration(seconds: float) -> str:
    for size, unit in _DURATIONS:
        if seconds and seconds % size == 0:
            return f"{int(seconds / size)}{unit}"
    return "0s" if not seconds else f"{seconds * 1000:g}ms"


def _size(count: int) -> str:
    for size, unit in _SIZES:
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count}B"
