"""What a place on the command line is: a log's folder or a replica, and how a replica is opened for reading."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from litelog.objects.layout import CLAIMS, GENERATIONS
from litelog.objects.position import Generation, generation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from litelog.stores.replica_client import ReplicaClient


PLACE_POLL_SECONDS = 1.0
"""How often a follower looks at a folder that holds neither a log nor a replica yet: a log's writer is not waited for
longer than a replica's next WAL segment."""


class _GenerationName(click.ParamType[Generation]):
    """A generation's name as a parameter."""

    name = "generation"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Generation:
        try:
            return generation(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


GENERATION = _GenerationName()


class _PlaceName(click.ParamType[str]):
    """A log's folder or a replica, which shells complete as a folder. An empty one is a variable that is not set: the
    working folder is not meant."""

    name = "place"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("may not be empty", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        return [CompletionItem(incomplete, type="dir")]


PLACE = _PlaceName()


def is_replica(place: str) -> bool:
    """Whether ``place`` is a replica: a URL, or a folder that holds what a replica holds."""
    if "://" in place:
        return True
    return any(os.path.isdir(os.path.join(place, folder)) for folder in (CLAIMS, GENERATIONS))


def wait_for_place(place: str, wait: Callable[[float], object]) -> bool:
    """Wait until the folder ``place`` is a replica or holds files, as a log does. Returns whether it had to wait."""
    waited = False
    while not (is_replica(place) or _holds_files(place)):
        waited = True
        wait(PLACE_POLL_SECONDS)
    return waited


def _holds_files(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.is_file() and not entry.name.startswith(".") for entry in entries)
    except FileNotFoundError:
        return False


@contextmanager
def opened_replica(url: str, options: Mapping[str, object] | None = None) -> Iterator[ReplicaClient]:
    """A client of the replica at ``url`` that tries failed requests again, closed at the end. ``options``: its
    backend's own."""
    from litelog.stores.object_store import ObjectReplicaClient
    from litelog.stores.registry import open_store
    from litelog.stores.retrying_store import RetryingStore

    stop = threading.Event()
    client = ObjectReplicaClient(RetryingStore(open_store(url, options), stop))
    try:
        yield client
    finally:
        stop.set()
        client.close()
