"""Says why TLS with a server failed, for the clients that speak HTTP."""

from __future__ import annotations

_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""How OpenSSL 3 names an answer without TLS, by its releases."""


def explain_tls(where: str, said: str, advice: str) -> tuple[str, bool]:
    """The reason of a failure of TLS, and whether a retry may succeed.

    Args:
        where: The server's URL without its path.
        said: The library's message.
        advice: What to check, if the server does speak TLS.
    """
    if any(name in said for name in _NOT_TLS):
        return f"{where} does not speak TLS: write http:// in its URL, or name its port with TLS: {said}", False
    return f"TLS with {where} failed: {advice}: {said}", "certificate verify failed" not in said.lower()
