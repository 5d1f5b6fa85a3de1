"""While a socket is lent, another thread sends on it; before and after that, the event loop does, and bytes keep their
order."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from litelog.server.lent_socket import LentSocket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PIECE = b"0123456789" * 3000


class Ends(asyncio.Protocol):
    """As the server's connections do, it takes the socket back before it is closed."""

    def __init__(self) -> None:
        self.lent: LentSocket | None = None
        self.is_lost = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        assert self.lent is not None
        self.lent.take_back()
        self.is_lost.set()


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[LentSocket, asyncio.Transport, socket.socket, Ends]]:
    """A lent socket with a small buffer, its transport, the client's end, and its protocol."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listener.getsockname())
        mine, _ = listener.accept()
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_accepted_socket(Ends, mine)
    protocol.lent = LentSocket(transport, loop)
    protocol.lent.lend()
    try:
        with client:
            yield protocol.lent, transport, client, protocol
    finally:
        transport.abort()


def send_in_thread(lent: LentSocket, pieces: list[bytes]) -> list[bool]:
    """Send pieces from another thread, while the loop does nothing. Returns which were taken."""
    taken = list[bool]()
    thread = threading.Thread(target=lambda: taken.extend(map(lent.send, pieces)))
    thread.start()
    thread.join()
    return taken


def read_all(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (piece := client.recv(1 << 16)):
        found += piece
    return found


def test_what_the_client_does_not_take_comes_before_all_that_the_loop_writes() -> None:
    async def run() -> tuple[list[bool], bytes, bytes]:
        async with connected() as (lent, transport, client, _):
            taken = send_in_thread(lent, [b"%d:%b" % (number, PIECE) for number in range(20)])
            lent.take_back()
            transport.write(b"after")
            wanted = b"".join(b"%d:%b" % (number, PIECE) for number in range(sum(taken))) + b"after"
            return taken, wanted, await asyncio.to_thread(read_all, client, len(wanted))

    taken, wanted, found = asyncio.run(run())
    assert found == wanted
    assert 0 < sum(taken) < len(taken)
    assert taken == sorted(taken, reverse=True), "after the first piece that was cut, none is taken"


def test_the_loop_sends_the_rest_although_nothing_else_happens() -> None:
    async def run() -> tuple[int, int]:
        async with connected() as (lent, _, client, _):
            size = sum(send_in_thread(lent, [PIECE] * 20)) * len(PIECE)
            return size, len(await asyncio.to_thread(read_all, client, size))

    size, found = asyncio.run(run())
    assert found == size


def test_a_socket_is_not_lent_while_something_is_unsent() -> None:
    async def run() -> tuple[list[bool], list[bool]]:
        async with connected() as (lent, transport, client, _):
            lent.take_back()
            transport.write(PIECE * 20)
            lent.lend()
            before = send_in_thread(lent, [b"first"])
            await asyncio.to_thread(read_all, client, 20 * len(PIECE))
            while transport.get_write_buffer_size():
                await asyncio.sleep(0)
            lent.lend()
            return before, send_in_thread(lent, [b"second"])

    assert asyncio.run(run()) == ([False], [True])


def test_nothing_is_sent_after_the_loan_or_into_another_file() -> None:
    async def run() -> tuple[bytes, list[list[bool]]]:
        async with connected() as (lent, transport, _, protocol):
            number = transport.get_extra_info("socket").fileno()
            read, write = os.pipe()
            lent.take_back()
            taken = [send_in_thread(lent, [b"returned"])]
            transport.abort()
            lent.lend()
            taken.append(send_in_thread(lent, [b"closing"]))
            await protocol.is_lost.wait()
            await asyncio.sleep(0)
            lent.lend()
            os.dup2(write, number)
            taken.append(send_in_thread(lent, [b"closed"]))
            os.close(write)
            os.close(number)
            try:
                return os.read(read, 100), taken
            finally:
                os.close(read)

    assert asyncio.run(run()) == (b"", [[False], [False], [False]])
