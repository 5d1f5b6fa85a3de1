"""Serves the daemon's status over HTTP, and sends its heartbeat.

It never delays shipping: it has its own threads, and if it fails, it logs that and replication continues.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from litelog.config.models import DEFAULT_ADDR, OFF
from litelog.errors import ConfigError
from litelog.events import fields
from litelog.server.daemon_view import StatusCache
from litelog.server.heartbeat import Heartbeat
from litelog.server.listener import Address, ListenError, listen
from litelog.server.status_view import HealthThresholds
from litelog.server.token_file import TokenFile
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from types import TracebackType

    from litelog.config import Config
    from litelog.server.daemon_view import Daemon

STOP_SECONDS = 0.5
"""Seconds to wait at the end for answers that are under way."""
MAX_HEAD_BYTES = 16 << 10
"""Limit of a request's line and headers together, in bytes."""
KEEP_ALIVE_SECONDS = 5

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The service's settings from the configuration."""

    max_lag: float
    """Seconds."""
    addr: str | None = None
    """Address to listen on, or OFF; None: DEFAULT_ADDR, if possible."""
    token_file: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Allowed names in a Host header, besides this machine's loopback ones."""
    heartbeat_url: str | None = None
    heartbeat_interval: float = 60.0
    """Seconds."""
    config_file: str | None = None
    """The configuration's file, for people."""
    state_dir: str | None = None
    """The daemon's state folder, by which commands know the daemon that they mean."""
    request_seconds: float = 10.0
    """Seconds for a request's line and headers to arrive, and so the longest idle time of a connection."""

    @classmethod
    def of(cls, config: Config) -> ServiceSettings:
        """Take them from a configuration."""
        return cls(
            max_lag=config.max_lag,
            addr=config.addr,
            token_file=config.token_file,
            allowed_hosts=config.allowed_hosts,
            heartbeat_url=config.heartbeat_url,
            heartbeat_interval=config.heartbeat_interval,
        )


def require_listenable(addr: str, token_file: str | None) -> None:
    """Raise ConfigError if the server may not listen on a configured address, even if it is free: other machines can
    reach the address, and there is no token."""
    if addr == OFF:
        return
    address = Address.parse(addr)
    if not address.is_local and token_file is None:
        raise ConfigError(f"addr {address}: other machines can reach it, so it needs a token-file")


class Service:
    """A context manager. It listens from its creation, and answers inside the context.

    Raises ConfigError if an address that is not loopback has no token, and if the token cannot be used. Raises
    ListenError if it cannot listen on a configured address. At the default address it only logs that, and the daemon
    continues without: another daemon may be using it.
    """

    def __init__(self, daemon: Daemon, settings: ServiceSettings) -> None:
        self._daemon = daemon
        self._settings = settings
        self._status_cache = StatusCache(
            daemon,
            HealthThresholds(settings.max_lag),
            SystemClock(),
            host=socket.gethostname(),
            config=settings.config_file,
            state_dir=settings.state_dir,
        )
        self._heartbeat = (
            Heartbeat(self._status_cache, settings.heartbeat_url, settings.heartbeat_interval)
            if settings.heartbeat_url is not None
            else None
        )
        self._token = TokenFile(settings.token_file) if settings.token_file is not None else None
        self._address, self._listener = self._open()
        self._server: Any = None
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

    @property
    def address(self) -> Address | None:
        """The address with its actual port; None if it does not listen."""
        if self._address is None or self._listener is None or self._address.path is not None:
            return self._address if self._listener is not None else None
        return Address(host=self._address.host, port=self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        if self._listener is not None or self._heartbeat is not None:
            self._status_cache.start()
        if self._heartbeat is not None:
            self._heartbeat.start()
        if self._listener is not None:
            self._thread.start()
            _logger.info("listening at %s", self.address, extra=fields("listening", addr=str(self.address)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._server is not None:
            self._server.end()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        self._status_cache.stop()
        self._release()

    def _open(self) -> tuple[Address | None, socket.socket | None]:
        given = self._settings.addr
        if given == OFF:
            return None, None
        address = Address.parse(given or DEFAULT_ADDR)
        if given is not None:
            require_listenable(given, self._settings.token_file)
        try:
            return address, listen(address)
        except ListenError as error:
            if given is not None:
                raise
            _logger.warning(
                "%s; continuing without status over HTTP (another daemon may have it: choose another addr)",
                error,
                extra=fields("not-listening"),
            )
            return None, None

    def _serve(self) -> None:
        """The server's thread. It imports what it needs here, during the first sync."""
        try:
            self._run()
        except Exception:
            _logger.exception("the HTTP server ended; replication continues", extra=fields("http-ended"))

    def _run(self) -> None:
        import uvicorn  # noqa: PLC0415

        from litelog.server.app import make_app  # noqa: PLC0415
        from litelog.server.http_server import ConnectionLimits, QuietServer  # noqa: PLC0415

        assert self._address is not None
        assert self._listener is not None
        hosts = None if self._address.path is not None else (self._address.host, *self._settings.allowed_hosts)
        app = make_app(self._daemon, self._status_cache, heartbeat=self._heartbeat, token=self._token, hosts=hosts)
        limits = ConnectionLimits(self._settings.request_seconds)
        config = uvicorn.Config(
            limits.observe(app),
            http="h11",
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        limits.install(config)
        self._server = QuietServer(config)
        if not self._stopping:
            self._server.run(sockets=[self._listener])

    def _release(self) -> None:
        if self._listener is None or self._address is None:
            return
        if self._address.path is not None:
            with suppress(OSError):
                os.unlink(self._address.path)
        self._listener.close()
