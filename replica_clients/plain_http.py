"""Whether the URL of a server is all that a GET needs on this machine: for signed URLs."""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def is_reached(url: str, *, trusts: bool) -> bool:
    """Whether a client without settings reaches the server: without a proxy, and with the usual authorities.

    ``trusts``: whether settings or the environment name authorities of their own.
    """
    parts = urlsplit(url)
    if trusts and parts.scheme == "https":
        return False
    return not getproxies().keys() & {parts.scheme, "all"} or bool(proxy_bypass(parts.netloc))
