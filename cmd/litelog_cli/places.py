"""What a place on the command line is: a log's folder, or a replica."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from litelog.layout import CLAIMS, GENERATIONS
from litelog.position import Generation, generation

if TYPE_CHECKING:
    from litelog.replica_client import ReplicaClient


class _GenerationName(click.ParamType[Generation]):
    """A generation's name as a parameter."""

    name = "generation"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Generation:
        try:
            return generation(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


GENERATION = _GenerationName()


def open_client(url: str) -> ReplicaClient:
    """The client of the replica at ``url``, found by its scheme; UnknownSchemeError lists those that are known."""
    from litelog.registry import open_replica_client

    return open_replica_client(url)


def is_replica(place: str) -> bool:
    """Whether ``place`` is a replica: a URL, or a folder that holds what a replica holds."""
    if "://" in place:
        return True
    return any(os.path.isdir(os.path.join(place, folder)) for folder in (CLAIMS, GENERATIONS))
