"""Checks the URL and options of an fsspec file system, and finds the secrets among them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fsspec.registry import available_protocols

from litelog.errors import ConfigError, UnknownSchemeError
from litelog.stores.registry import schemes

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_SECRET_CHARACTERS = 6
"""Shorter options are not secrets, and masking them would garble messages."""

_LOOKS_SECRET = re.compile(r"secret|token|passw|passphrase|credential|signature|sas|key|connection_string|pkey", re.I)
_READ_ONLY = frozenset({"http", "https", "data", "git", "github", "gist", "zip", "tar", "libarchive", "reference"})
_WRAPPERS = frozenset({"simplecache", "filecache", "blockcache", "cached", "dir", "generic", "dask", "async_wrapper"})
TAKEN = frozenset({"skip_instance_cache", "use_listings_cache", "asynchronous"})
"""Options that litelog sets itself."""


def require_usable(scheme: str, url: str) -> None:
    """Raise UnknownSchemeError for a scheme unknown to fsspec, and ConfigError for one that cannot hold a replica."""
    if scheme not in available_protocols():
        raise UnknownSchemeError(scheme, schemes())
    if scheme in _READ_ONLY:
        raise ConfigError(f"{scheme}:// is read-only: a replica needs a place to write to")
    if scheme in _WRAPPERS or "::" in url:
        raise ConfigError(f"{scheme}://: a replica's URL names one file system, without caches or chains")
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    _, colon, port = host.rpartition(":")
    cut = colon and port and not (port.isdecimal() or host.endswith("]"))  # a password with a slash ends the host early
    if ":" in user or cut or _LOOKS_SECRET.search(parts.query):
        raise ConfigError(
            f"{scheme}://: a URL takes no secrets: put them into the configuration file's options as ${{VARIABLE}}"
        )


def plain(value: object) -> object:
    """``value`` as plain types, since some SDKs compare types."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def secrets_in(arguments: Mapping[str, object]) -> list[str]:
    """The values of options whose names suggest secrets, longest first."""
    found = []
    for name, value in arguments.items():
        if isinstance(value, dict):
            found += secrets_in(value)
        elif isinstance(value, str) and len(value) >= MIN_SECRET_CHARACTERS and _LOOKS_SECRET.search(name):
            found.append(value)
    return sorted(found, key=len, reverse=True)
