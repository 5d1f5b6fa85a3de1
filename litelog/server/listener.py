"""The listening socket of the server: a TCP address or a unix socket."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
import tempfile
from contextlib import suppress

from litelog.dataclass import dataclass
from litelog.errors import LitelogError

BACKLOG = 64
SOCKET_MODE = 0o660
_UNIX = "unix:"


class ListenError(LitelogError):
    """The server cannot listen on the address."""


@dataclass(frozen=True, slots=True)
class Address:
    """A unix socket's path, or a host and a port."""

    path: str | None = None
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``HOST:PORT``, ``[IPV6]:PORT`` or ``unix:/path``, already checked by the configuration."""
        if text.startswith(_UNIX):
            return cls(path=text.removeprefix(_UNIX))
        host, _, port = text.rpartition(":")
        return cls(host=host.strip("[]"), port=int(port))

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.path is not None or self.host.lower() == "localhost":
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that listens, and its address, with the actual port."""

    address: Address
    socket: socket.socket

    def close(self) -> None:
        """Close the socket, and remove a unix socket's file."""
        if self.address.path is not None:
            with suppress(OSError):
                os.unlink(self.address.path)
        self.socket.close()


def listen(address: Address) -> Listener:
    """Listen at an address. Replaces a unix socket on which nothing listens. Raises ListenError."""
    try:
        if address.path is not None:
            return Listener(address, _listen_unix(address.path))
        opened = _listen_tcp(address)
        return Listener(Address(host=address.host, port=opened.getsockname()[1]), opened)
    except OSError as error:
        raise ListenError(f"addr {address}: cannot listen there: {error.strerror or error}") from error


def _listen_tcp(address: Address) -> socket.socket:
    (family, kind, protocol, _, place), *_ = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _listen_unix(path: str) -> socket.socket:
    """Bind the socket in a private folder, and then move it.

    So a client that finds the socket can connect, and its mode is set. If others can write to the target folder, they
    cannot put another socket there first.
    """
    if _is_answered(path):
        raise ListenError(f"addr unix:{path}: another process listens there")
    with tempfile.TemporaryDirectory(prefix=".l-", dir=os.path.dirname(path)) as folder:
        temporary = os.path.join(folder, "s")  # short: the whole path of a socket has 107 bytes at most
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(temporary)
            os.chmod(temporary, SOCKET_MODE)
            listener.listen(BACKLOG)
            os.rename(temporary, path)
        except BaseException:
            listener.close()
            raise
    return listener


def _is_answered(path: str) -> bool:
    """Whether a process listens there. Raises ListenError if something else is at the path: it must not be replaced."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"addr unix:{path}: exists, and is not a socket; remove it, or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(1.0)
        try:
            caller.connect(path)
        except ConnectionRefusedError:
            return False
        except TimeoutError:
            return True
        return True
