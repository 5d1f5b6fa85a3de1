"""How the configuration's values are read: durations, sizes, and names in YAML."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, ValidationInfo

from litelog.units import parse_duration, parse_size

FROM_DOCUMENT = "document"
"""The validation context's key that says: from YAML, where a number without a unit is no duration."""


def read_seconds(value: Any, info: ValidationInfo) -> Any:
    """A duration as people write it, in seconds; a number as it is, but for one in YAML."""
    if isinstance(value, str):
        return parse_duration(value)
    if value is not None and (isinstance(value, bool) or (info.context and info.context.get(FROM_DOCUMENT))):
        raise ValueError("must be a duration such as 10s, 1m30s or 500ms")
    return value


def read_bytes(value: Any) -> Any:
    """A size as people write it, in bytes; a number as it is."""
    if isinstance(value, bool):
        raise ValueError("must be a size such as 16MiB, 64KiB or 512B")
    return parse_size(value) if isinstance(value, str) else value


def kebab(name: str) -> str:
    """A field's name as it is written in YAML."""
    return name.replace("_", "-")


MODEL = ConfigDict(
    frozen=True,
    extra="forbid",
    alias_generator=kebab,
    validate_by_name=True,
    validate_by_alias=True,
    hide_input_in_errors=True,  # a value may be a secret
)
"""What all of the configuration's models have in common."""
