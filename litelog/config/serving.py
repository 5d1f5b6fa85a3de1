"""The configuration of the HTTP service and of health: where the daemon listens, and when it counts as healthy."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, StringConstraints

from litelog.config.values import read_seconds

DEFAULT_ADDR = "127.0.0.1:9977"
"""Default address, if the packages for listening are installed."""

OFF = "off"
"""The address of a daemon that does not listen."""

MAX_LAG = 60.0
"""Seconds."""

MAX_LAG_LIMIT = 366 * 86400.0
"""Seconds. A larger value is a mistake in the unit."""

_HOST_AND_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})")


def check_addr(text: str) -> str:
    """Return ``text`` if a daemon can listen there. Raises ValueError."""
    if text == OFF:
        return text
    if text.startswith("unix:"):
        if not os.path.isabs(text.removeprefix("unix:")):
            raise ValueError("write a unix socket as unix:/an/absolute/path")
        return text
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise ValueError("must be HOST:PORT, [IPV6]:PORT, unix:/path or off")
    if match[1]:
        ipaddress.IPv6Address(match[1])
    return text


def _off_word(value: Any) -> Any:
    """Convert ``off``, which YAML reads as a bool."""
    return OFF if value is False else value


def _max_lag(seconds: float) -> float:
    if not 1 <= seconds <= MAX_LAG_LIMIT:
        raise ValueError("must be from 1s to 366d")
    return seconds


def _heartbeat_interval(seconds: float) -> float:
    if not 1 <= seconds <= 86400:
        raise ValueError("must be from 1s to 1d")
    return seconds


def _http_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError("must be a URL that starts with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password, which are not sent; a path or a query may hold a secret")
    return text


def _host_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+", text):
        raise ValueError("must be a host's name or IP address, without a port")
    return text


def _absolute(path: str) -> str:
    if "\0" in path or not os.path.isabs(path):
        raise ValueError("must be an absolute path")
    return path


_Filled = Annotated[str, StringConstraints(strict=True, min_length=1)]
Addr = Annotated[_Filled, BeforeValidator(_off_word), AfterValidator(check_addr)]
MaxLag = Annotated[float, BeforeValidator(read_seconds), AfterValidator(_max_lag)]
TokenFile = Annotated[_Filled, AfterValidator(_absolute)]
HeartbeatUrl = Annotated[_Filled, AfterValidator(_http_url)]
HeartbeatInterval = Annotated[float, BeforeValidator(read_seconds), AfterValidator(_heartbeat_interval)]
HostName = Annotated[_Filled, AfterValidator(_host_name)]
