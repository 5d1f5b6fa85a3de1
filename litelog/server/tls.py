"""TLS: the daemon's certificate, which is read again after a change."""

from __future__ import annotations

import logging
import os
import ssl
from typing import TYPE_CHECKING

from litelog.errors import ConfigError
from litelog.events import fields

if TYPE_CHECKING:
    from litelog.config.access import TlsConfig

_logger = logging.getLogger(__name__)


class ServerTls:
    """Makes the TLS context of the server. A renewed certificate is used from the next connection on."""

    def __init__(self, files: TlsConfig) -> None:
        """Raises ConfigError if the certificate or its key cannot be used."""
        self._files = files
        self._signature = self._sign()
        self._current = self._load()
        self.context = self._load()
        """The context of the listening socket. Each handshake takes the newest certificate."""
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called in each handshake."""
        signature = self._sign()
        if signature != self._signature:
            self._signature = signature
            try:
                self._current = self._load()
            except ConfigError as error:
                _logger.error("%s; the previous certificate stays in use", error, extra=fields("certificate-refused"))
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        files = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        for name, path in (("certificate", files.certificate), ("key", files.key)):
            if not os.access(path, os.R_OK):
                raise ConfigError(f"tls: {name} {path}: cannot be read; check its path and who may read it")
        try:
            context.load_cert_chain(files.certificate, files.key, _no_password)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"tls: certificate {files.certificate} and key {files.key}: cannot be used: {_reason(error)}; both are "
                "PEM files, the key without a password, and belong together"
            ) from error
        return context

    def _sign(self) -> tuple[tuple[int, ...] | None, ...]:
        return tuple(map(_sign, (self._files.certificate, self._files.key)))


def _no_password() -> str:
    raise ValueError("the key has a password")


def _reason(error: OSError | ValueError) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower()


def _sign(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
