"""A connection is lent only while nothing else may be written to it."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("uvicorn")

from litelog.server.http_server import JOINED_BYTES, ConnectionLimits, LimitedConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Answering(asyncio.Protocol):
    """Speaks no HTTP: the answer to what the client sends is a line."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"answer to %b\n" % data)


@asynccontextmanager
async def lent() -> AsyncIterator[tuple[LimitedConnection, asyncio.Transport, socket.socket]]:
    """A connection that has begun a stream, and is lent; its transport; and the client's end, which never waits."""
    mine, client = socket.socketpair()
    connection = LimitedConnection(ConnectionLimits(), Answering())
    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, mine)
    connection.begin_stream()
    connection._is_chunked = True
    connection.lend()
    assert connection.send(b"first")
    with client:
        client.settimeout(0)
        yield connection, transport, client
        transport.abort()


FIRST = b"5\r\nfirst\r\n"


def test_nothing_is_sent_into_the_file_that_gets_a_lost_descriptor() -> None:
    async def run() -> bytes:
        async with lent() as (connection, transport, client):
            number = transport.get_extra_info("socket").fileno()
            read, write = os.pipe()
            client.close()
            while transport.get_extra_info("socket").fileno() >= 0:
                await asyncio.sleep(0)
            os.dup2(write, number)
            assert not connection.send(b"second")
            os.close(write)
            os.close(number)
            with open(read, "rb") as file:
                return file.read()

    assert asyncio.run(run()) == b""


def test_an_answer_to_the_client_is_the_last_thing_until_a_further_loan() -> None:
    async def run() -> bytes:
        async with lent() as (connection, _, client):
            client.send(b"x")
            while connection.send(b"second"):
                await asyncio.sleep(0)
            answered = client.recv(1 << 16)
            connection.lend()
            assert connection.send(b"third")
            return answered

    assert asyncio.run(run()).endswith(b"answer to x\n")


def test_nothing_is_sent_after_the_answer_has_ended() -> None:
    async def run() -> bytes:
        async with lent() as (connection, _, client):
            connection.end_answer()
            assert not connection.send(b"second")
            return client.recv(1 << 16)

    assert asyncio.run(run()) == FIRST


def test_a_large_piece_and_an_empty_one_are_for_the_loop() -> None:
    async def run() -> bytes:
        async with lent() as (connection, _, client):
            assert not connection.send(bytes(JOINED_BYTES))
            assert not connection.send([b"", b""])
            assert connection.send([b"fo", b"ur"])
            return client.recv(1 << 16)

    assert asyncio.run(run()) == FIRST + b"4\r\nfour\r\n"


def test_a_connection_that_is_closed_in_another_thread_has_nothing_unsent() -> None:
    """The event loop may close it at any moment while the thread that publishes a run looks at it."""
    mine, client = socket.socketpair()
    numbers = [mine.fileno(), -1]
    mine.close()
    client.close()

    class Closing(asyncio.Transport):
        def get_write_buffer_size(self) -> int:
            return 0

        def get_extra_info(self, name: str, default: object = None) -> object:
            return SimpleNamespace(fileno=lambda: numbers.pop(0)) if name == "socket" else default

    connection = LimitedConnection(ConnectionLimits(), Answering())
    connection._transport = Closing()
    assert connection.unsent_bytes() == 0
