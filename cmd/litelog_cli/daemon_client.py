"""Asks the daemon of this machine over HTTP, at the configured address or the default one."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from litelog.dataclass import dataclass
from litelog.errors import LitelogError
from litelog.system.files import read_regular
from litelog_cli.config_file import choose_state_dir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.config import Config

CONNECT_SECONDS = 5.0
MAX_ANSWER_BYTES = 64 << 20
MAX_TOKEN_BYTES = 4096


class NoDaemonError(LitelogError):
    """No daemon answers at the address."""


class OtherDaemonError(NoDaemonError):
    """The daemon that answers is not the intended one: it keeps its state elsewhere."""

    def __init__(self, addr: str, pid: object, actual: str, expected: str) -> None:
        super().__init__(
            f"the daemon at {addr} is not yours: process {pid}, which keeps its state in {actual}, not in "
            f"{expected}; name the address of yours with --addr"
        )


class DaemonAnswerError(LitelogError):
    """The answer is a refusal, or does not come from a daemon."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True, slots=True)
class DaemonClient:
    """A daemon's address, and the token for it."""

    addr: str
    token_file: str | None = None
    certificate: str | None = None
    """The certificate with which it speaks TLS; None: it speaks plain HTTP."""

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """The daemon's answer, from JSON. Raises NoDaemonError and DaemonAnswerError."""
        status, answer = self._request("GET", path, query, CONNECT_SECONDS)
        if status != http.HTTPStatus.OK:
            raise DaemonAnswerError(f"the daemon at {self.addr} answers {status}: {_error_in(answer)}")
        return answer

    def status(self, state_dir: str | None) -> dict[str, Any]:
        """The daemon's status. Raises OtherDaemonError if it keeps its state elsewhere than in ``state_dir``."""
        answer = self.get("/status")
        actual = answer.get("state_dir")  # older daemons do not report it
        if state_dir is not None and isinstance(actual, str) and os.path.realpath(state_dir) != actual:
            raise OtherDaemonError(self.addr, answer.get("pid"), actual, os.path.abspath(state_dir))
        return answer

    def post(self, path: str, seconds: float, accepted: Sequence[int], **query: str) -> dict[str, Any]:
        """As ``get``, for an answer that may take ``seconds``, and may have any status in ``accepted``."""
        status, answer = self._request("POST", path, query, seconds + CONNECT_SECONDS)
        if status not in accepted:
            raise DaemonAnswerError(f"the daemon at {self.addr} answers {status}: {_error_in(answer)}")
        return answer

    def _request(self, method: str, path: str, query: Mapping[str, str], seconds: float) -> tuple[int, dict[str, Any]]:
        connection = self._connect(seconds)
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            try:
                connection.request(method, target, headers=self._headers())
                response = connection.getresponse()
                body = response.read(MAX_ANSWER_BYTES)
            except (ConnectionRefusedError, FileNotFoundError) as error:
                raise NoDaemonError(f"no daemon answers at {self.addr}") from error
            except ssl.SSLError as error:
                raise NoDaemonError(
                    f"the daemon at {self.addr} does not speak TLS with the configured certificate "
                    f"({self.certificate}): {error.reason or error}; restart it if the configuration has changed"
                ) from error
            except (OSError, http.client.HTTPException) as error:
                advice = "; if it speaks TLS, name its configuration with --config" if self._is_cut_off(error) else ""
                raise NoDaemonError(f"the daemon at {self.addr} does not answer: {error}{advice}") from error
            try:
                answer = json.loads(body)
            except ValueError:
                answer = None
            if not isinstance(answer, dict):
                raise DaemonAnswerError(f"the server at {self.addr} is not a litelog daemon (status {response.status})")
            return response.status, answer
        finally:
            connection.close()

    def _connect(self, seconds: float) -> http.client.HTTPConnection:
        if self.addr.startswith("unix:"):
            return _UnixConnection(self.addr.removeprefix("unix:"), seconds)
        host, _, port = self.addr.rpartition(":")
        host = host.strip("[]")
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - an address to connect to, not to listen on
        place = everywhere.get(host, host)
        if self.certificate is None:
            return http.client.HTTPConnection(place, int(port), timeout=seconds)
        context = self._trust(self.certificate)
        return http.client.HTTPSConnection(place, int(port), timeout=seconds, context=context)

    def _is_cut_off(self, error: Exception) -> bool:
        """Whether the connection ended as one without TLS to a port with TLS does."""
        return self.certificate is None and isinstance(error, http.client.RemoteDisconnected | ConnectionResetError)

    def _trust(self, certificate: str) -> ssl.SSLContext:
        """Trust the daemon's own certificate, even if it does not name the address at which the daemon listens."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(certificate)
        except (OSError, ssl.SSLError) as error:
            raise DaemonAnswerError(f"tls: certificate {certificate}: cannot be read: {error.strerror}") from error
        return context

    def _headers(self) -> dict[str, str]:
        if self.token_file is None:
            return {}
        try:
            token = read_regular(self.token_file, MAX_TOKEN_BYTES).decode("ascii").partition("\n")[0].strip()
        except OSError as error:
            raise DaemonAnswerError(f"token-file {self.token_file}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise DaemonAnswerError(f"token-file {self.token_file}: is not ASCII text") from error
        return {"Authorization": f"Bearer {token}"}


def find_daemon(config: Config | None, addr: str | None) -> DaemonClient | None:
    """The daemon at ``addr``, else at the configured address; None if the daemon is configured not to listen."""
    from litelog.config.models import DEFAULT_ADDR, OFF

    configured = config.addr if config is not None else None
    chosen = addr or configured or DEFAULT_ADDR
    if chosen == OFF:
        return None
    if config is None:
        return DaemonClient(chosen)
    token_file = config.token_file or next((each.file for each in config.tokens if "status" in each.rights), None)
    return DaemonClient(chosen, token_file, None if config.tls is None else config.tls.certificate)


def expected_state(given: str | None, config: Config | None, addr: str | None) -> str | None:
    """The state folder of the intended daemon: from ``--state-dir``, else from the configuration.

    None if nothing names one: the user chose the daemon by its address, or there is no configuration.
    """
    if given is not None or addr is not None or config is None:
        return given
    return choose_state_dir(None, config)


def same_log(one: str, other: str) -> bool:
    """Whether two paths are the folder of the same log."""
    return os.path.realpath(one) == os.path.realpath(other)


def same_replica(given: str, known: str) -> bool:
    """Whether ``given``, as a person writes it, is the replica that the daemon calls ``known``."""
    from litelog.stores.registry import local_folder, redact

    folder = local_folder(known)
    if folder is not None:
        path = local_folder(given) or given
        return "://" not in path and os.path.realpath(path) == os.path.realpath(folder)
    return redact(given).rstrip("/") == known.rstrip("/") or given.partition("?")[0] == known.partition("?")[0]


def _error_in(answer: dict[str, Any]) -> str:
    """The message of an answer that is an error; empty if another service answered."""
    error = answer.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else ""
