"""Prints what a replica's credentials permit, and the least policies for its users: parts of ``litelog check``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, StoreError
from litelog_cli.output import echo_lines, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.stores.access import Access, Attempt, Role
    from litelog.stores.object_store import ObjectStore

THIEF = "somebody who steals these credentials could"


def examine_access(store: ObjectStore) -> Access | None:
    """Find out what the store's credentials permit. None if the store has no permissions or does not answer: the steps
    of the check report that."""
    from random import SystemRandom

    from litelog.objects.layout import trial_prefix
    from litelog.stores.access import ShowsAccess

    if not isinstance(store, ShowsAccess):
        return None
    try:
        return store.examine(trial_prefix(SystemRandom().getrandbits(64)))
    except StoreError:
        return None


def print_access(access: Access) -> None:
    """Print it as lines and a table."""
    from litelog.stores.access import summary

    print_table((THIEF, "", ""), [_row(attempt) for attempt in access.attempts])
    echo_lines(summary(access))


def _row(attempt: Attempt) -> tuple[str, str, str]:
    return attempt.deed.value, {True: "yes", False: "no", None: "unknown"}[attempt.may], attempt.meaning


def print_policy(url: str, options: Mapping[str, object], role: Role, *, deletes: bool) -> None:
    """Print the least policy for a user of a replica. Raises ConfigError if its store has no policies."""
    from litelog.stores.access import ShowsAccess
    from litelog.stores.registry import open_store

    store = open_store(url, options)
    try:
        if not isinstance(store, ShowsAccess):
            raise ConfigError(f"{store.url}: only s3:// has policies")
        echo_lines(json.dumps(store.least_policy(role, deletes=deletes), indent=2).splitlines())
    finally:
        store.close()
