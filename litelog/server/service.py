"""Serves the daemon's status over HTTP, and sends its heartbeat.

The service never delays shipping: it has its own threads. If it fails, it logs that, and replication continues.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from dataclasses import field
from typing import TYPE_CHECKING, Any, Self

from litelog.config.models import DEFAULT_ADDR, OFF
from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.events import fields
from litelog.live.reader_limits import ReaderLimits
from litelog.server.daemon_view import StatusCache
from litelog.server.listener import Address, ListenError, listen
from litelog.server.status_view import HealthThresholds
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from litelog.config import Config
    from litelog.config.access import TlsConfig, TokenConfig
    from litelog.live.served_logs import ServedLogs
    from litelog.server.daemon_view import Daemon
    from litelog.server.heartbeat import Heartbeat
    from litelog.server.listener import Listener
    from litelog.server.permits import Tokens
    from litelog.server.tls import ServerTls
    from litelog.system.inotify import Watcher

STOP_SECONDS = 0.5
"""Seconds that the end of the service waits for answers in progress."""
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
    tokens: tuple[TokenConfig, ...] = ()
    """Further tokens, which permit only some requests."""
    tls: TlsConfig | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Allowed names in a Host header, besides this machine's loopback names."""
    heartbeat_url: str | None = None
    heartbeat_interval: float = 60.0
    """Seconds."""
    config_file: str | None = None
    """The configuration file, for people."""
    state_dir: str | None = None
    """The daemon's state folder, by which commands recognise the daemon."""
    serve: str | tuple[str, ...] = ()
    """The logs that other processes may read: their names, or ALL."""
    reader_limits: ReaderLimits = field(default_factory=ReaderLimits)
    """How much the readers of logs may use."""
    request_seconds: float = 10.0
    """Seconds for a request's line and headers to arrive, which also limit the idle time of a connection."""

    @property
    def has_token(self) -> bool:
        """Whether requests need a token."""
        return self.token_file is not None or bool(self.tokens)

    @classmethod
    def of(cls, config: Config) -> ServiceSettings:
        """Take the settings from a configuration."""
        return cls(
            max_lag=config.max_lag,
            addr=config.addr,
            token_file=config.token_file,
            tokens=config.tokens,
            tls=config.tls,
            allowed_hosts=config.allowed_hosts,
            heartbeat_url=config.heartbeat_url,
            heartbeat_interval=config.heartbeat_interval,
            serve=config.serve,
            reader_limits=ReaderLimits(config.max_readers, config.max_reader_rate, config.max_reader_bytes),
        )


def require_listenable(addr: str, *, has_token: bool) -> None:
    """Raise ConfigError if the server may not listen on a configured address: other machines can reach the address,
    and no token is configured. Does not check whether the address is free."""
    if addr == OFF:
        return
    address = Address.parse(addr)
    if not address.is_local and not has_token:
        raise ConfigError(f"addr {address}: other machines can reach it, so it needs a token-file or tokens")


class Service:
    """The HTTP server and the heartbeat: a context manager. It answers inside the context.

    Modules that only one of them needs are imported late: a daemon to which no client has connected holds 10 MiB
    less. The first connection waits in the kernel's queue for the time that the imports take.
    """

    def __init__(self, daemon: Daemon, settings: ServiceSettings, on_loaded: Callable[[], None] = lambda: None) -> None:
        """Open the socket. If the default address cannot be used, only logs that: another daemon may use it.

        ``on_loaded`` is called by the server's thread before the first request, once all that it needs is imported.

        Raises:
            ConfigError: an address that is not loopback has no token, or a token or the certificate cannot be used.
            ListenError: the server cannot listen on a configured address.
        """
        self._daemon = daemon
        self._on_loaded = on_loaded
        self._settings = settings
        self._status_cache = StatusCache(
            daemon,
            HealthThresholds(settings.max_lag),
            SystemClock(),
            host=socket.gethostname(),
            config=settings.config_file,
            state_dir=settings.state_dir,
        )
        self._heartbeat = self._make_heartbeat()
        self._tokens = self._make_tokens()
        self._tls = self._make_tls()
        self._watcher: Watcher | None = None
        self._logs: ServedLogs | None = None
        self._listener = self._open()
        self._server: Any = None
        self._ended: int | None = None
        """A descriptor that is readable once the service ends."""
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> Address | None:
        """The address with its actual port; None if the service does not listen."""
        return None if self._listener is None else self._listener.address

    def __enter__(self) -> Self:
        if self._listener is not None or self._heartbeat is not None:
            self._status_cache.start()
        if self._heartbeat is not None:
            self._heartbeat.start()
        if self._listener is not None:
            self._ended = os.eventfd(0, os.EFD_CLOEXEC)
            self._thread = threading.Thread(
                target=self._serve, args=(self._listener, self._ended), name="http", daemon=True
            )
            self._thread.start()
            address = self._listener.address
            said = f"{address}, with TLS" if self._tls is not None else str(address)
            _logger.info("listening at %s", said, extra=fields("listening", addr=str(address)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        if self._ended is not None:
            os.eventfd_write(self._ended, 1)
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._server is not None:
            self._server.end()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
        self._status_cache.stop()
        if self._logs is not None:
            self._logs.close()
        if self._watcher is not None:
            self._watcher.close()
        if self._listener is not None:
            self._listener.close()
        if self._ended is not None:
            os.close(self._ended)
            self._ended = None

    def _make_heartbeat(self) -> Heartbeat | None:
        if self._settings.heartbeat_url is None:
            return None
        from litelog.server.heartbeat import Heartbeat  # noqa: PLC0415

        return Heartbeat(self._status_cache, self._settings.heartbeat_url, self._settings.heartbeat_interval)

    def _make_tokens(self) -> Tokens | None:
        if not self._settings.has_token:
            return None
        from litelog.server.permits import Tokens  # noqa: PLC0415

        return Tokens(self._settings.token_file, self._settings.tokens)

    def _make_tls(self) -> ServerTls | None:
        if self._settings.tls is None:
            return None
        from litelog.server.tls import ServerTls  # noqa: PLC0415

        return ServerTls(self._settings.tls)

    def _open(self) -> Listener | None:
        given = self._settings.addr
        if given == OFF:
            return None
        address = Address.parse(given or DEFAULT_ADDR)
        if given is not None:
            require_listenable(given, has_token=self._settings.has_token)
        try:
            return listen(address)
        except ListenError as error:
            if given is not None:
                raise
            _logger.warning(
                "%s; continuing without status over HTTP (another daemon may have it: choose another addr)",
                error,
                extra=fields("not-listening"),
            )
            return None

    def _serve(self, listener: Listener, ended: int) -> None:
        """The server's thread."""
        try:
            if not self._settings.serve:
                _wait_for_client(listener, ended)
            if not self._stopping:
                self._run(listener)
        except Exception:
            _logger.exception("the HTTP server ended; replication continues", extra=fields("http-ended"))

    def _run(self, listener: Listener) -> None:
        import uvicorn  # noqa: PLC0415

        from litelog.server.app import make_app  # noqa: PLC0415
        from litelog.server.http_server import ConnectionLimits, QuietServer  # noqa: PLC0415

        address = listener.address
        hosts = None if address.path is not None else (address.host, *self._settings.allowed_hosts)
        if self._settings.serve:
            self._serve_logs(self._settings.serve)
        app = make_app(
            self._daemon,
            self._status_cache,
            heartbeat=self._heartbeat,
            tokens=self._tokens,
            hosts=hosts,
            logs=self._logs,
        )
        readers = self._settings.reader_limits.readers if self._logs is not None else 0
        limits = ConnectionLimits(self._settings.request_seconds, readers)
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
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        limits.install(config, None if self._tls is None else self._tls.context)
        self._server = QuietServer(config, self._end_streams)
        self._on_loaded()
        if not self._stopping:
            self._server.run(sockets=[listener.socket])

    def _end_streams(self) -> None:
        """Let the streams end with the reason. The event loop's thread calls it."""
        if self._logs is not None:
            self._logs.end_readers()

    def _serve_logs(self, served: str | tuple[str, ...]) -> None:
        from litelog.live.served_logs import ServedLogs  # noqa: PLC0415
        from litelog.system.inotify import Watcher  # noqa: PLC0415

        self._watcher = Watcher()
        clock = self._status_cache.clock
        self._logs = ServedLogs(self._daemon, served, self._watcher, clock, self._settings.reader_limits)


def _wait_for_client(listener: Listener, ended: int) -> None:
    """Wait until a client has connected, or ``ended`` is readable."""
    waiting = select.poll()
    for descriptor in (listener.socket.fileno(), ended):
        waiting.register(descriptor, select.POLLIN)
    waiting.poll()
