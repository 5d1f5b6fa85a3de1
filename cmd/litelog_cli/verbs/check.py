"""``litelog check``: tries whether a replica's store does what replication needs."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from litelog.errors import ExitCode
from litelog.objects.layout import Fencing
from litelog.stores.access import Role
from litelog_cli.arguments import PLACE, is_replica
from litelog_cli.configured import ConfiguredReplica, find_sources
from litelog_cli.listed import print_heading
from litelog_cli.output import echo, print_json, print_table
from litelog_cli.store_access import examine_access, print_access, print_policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.stores.probe import ProbeStep


@click.command(
    epilog="""\b
Examples:
  litelog check file:///backup/events
  litelog check 's3://bucket/events?region=eu-west-1'
  litelog check --json s3://bucket/events
  litelog check --fencing isolated sftp://backup/events
  litelog check --config /etc/litelog.yml /var/lib/events
  litelog check --policy daemon s3://bucket/events > policy.json
"""
)
@click.argument("place", metavar="REPLICA_URL|LOG_DIR", type=PLACE)
@click.option(
    "--config", "config_file", type=click.Path(), help="Configuration file with LOG_DIR, or with the replica's options."
)
@click.option(
    "--fencing",
    type=click.Choice([mode.value for mode in Fencing]),
    help="How to fence the replica; isolated works without create-only puts.  [default: as configured, or required]",
)
@click.option(
    "--policy",
    type=click.Choice([role.value for role in Role]),
    help="Check nothing, and print the S3 policy with the least rights as JSON: for a daemon, for a reader (restore, "
    "cat, verify) or for a pruner (prune). Sends no request.",
)
@click.option(
    "--no-delete",
    is_flag=True,
    help="With --policy daemon: the policy of a daemon with no-delete.  [default: as configured]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each step, and one for the result.")
def check(
    place: str, config_file: str | None, fencing: str | None, policy: str | None, no_delete: bool, as_json: bool
) -> int:
    """Try all that replication does at REPLICA_URL, or at each replica of a configured log, with test objects.

    Writes a small object, reads and lists it, and overwrites it, which the store must refuse. Lets eight threads put
    one key at the same moment, of which exactly one must win. Deletes an object conditionally, and the first object.
    Lists 1,001 objects, which takes a second or more (not done in a folder). Prints how long each step took, what is
    missing, the consequences, and which fencing the store supports. Exits with code 1 if something that replication
    needs is missing. The daemon tries the same with fewer objects before its first claim at a destination.

    On S3 it also says whether the bucket keeps versions and locks objects, and tries with test objects what somebody
    who steals these credentials could do: read, overwrite, delete, delete versions, and end locks.
    """
    if no_delete and policy != Role.DAEMON:
        raise click.UsageError("--no-delete is for --policy daemon")
    replicas = find_sources((place,), config_file).replicas
    if policy is not None:
        for replica in replicas:
            print_policy(replica.url, replica.options, Role(policy), deletes=not (no_delete or replica.no_delete))
        return ExitCode.DONE
    modes = [Fencing(fencing) if fencing is not None else replica.fencing for replica in replicas]
    checked = [_check(*pair, len(replicas) > 1, as_json) for pair in zip(replicas, modes, strict=True)]
    return ExitCode.DONE if all(checked) else ExitCode.FAILURE


def _check(replica: ConfiguredReplica, fencing: Fencing, heading: bool, as_json: bool) -> bool:
    """Whether the replica can be used with that fencing."""
    from random import SystemRandom

    from litelog.stores.probe import run_probe
    from litelog.stores.registry import local_folder, open_store
    from litelog.stores.trial import LISTED
    from litelog.system.clock import SystemClock

    store = open_store(replica.url, replica.options)
    steps = []
    folder = local_folder(store.url)
    listed = LISTED if folder is None else 0  # a folder has no pages
    with _removing_new_folders(folder) as made:
        try:
            for step in run_probe(store, SystemClock(), SystemRandom(), fencing, listed):
                steps.append(step)
                if as_json:
                    print_json(step.as_json())
            access = examine_access(store)
        finally:
            store.close()
    usable = _usable_fencing(steps)
    if as_json:
        result = {"replica": store.url, "fencing": fencing, "usable": fencing in usable, "usable_fencing": usable}
        print_json({**result, "access": None if access is None else access.as_json()})
    else:
        print_heading(store.url if heading else None, echo)
        shown = [step for step in steps if _is_shown(step)]
        print_table(("step", "result", "ms", ""), [_row(step) for step in shown], numbers=("ms",))
        if access is not None:
            print_access(access)
        echo(f"usable with fencing: {' or '.join(usable) or 'none'} (requested: {fencing})")
        if made:
            echo(f"{folder} does not exist: it was made for the check, and removed again")
    return fencing in usable


@contextmanager
def _removing_new_folders(folder: str | None) -> Iterator[list[str]]:
    """Refuse the folder of a log. At the end, remove the folders that the block created; yields them, deepest first.

    ``folder``: the folder of a local replica; None for another replica.
    """
    if folder is None:
        yield []
        return
    missing = []
    place = os.path.abspath(folder)
    while not os.path.lexists(place):
        missing.append(place)
        place = os.path.dirname(place)
    _refuse_log(place, is_folder_itself=not missing)
    yield missing
    for made in missing:
        with suppress(OSError):  # a daemon may have begun to use it
            os.rmdir(made)


def _refuse_log(place: str, *, is_folder_itself: bool) -> None:
    """Raise UsageError if a replica at ``place``, or in a new folder below it, would lie in the folder of a log."""
    from litelog.formats.litelog import sequence_of

    above, parents = place, []
    while above != os.path.dirname(above):
        parents.append(above)
        above = os.path.dirname(above)
    for parent in parents:
        if not is_replica(parent) and any(sequence_of(name) is not None for name in _names(parent)):
            raise click.UsageError(f"{parent} is the folder of a log: give the replica its own folder")
    if is_folder_itself and not is_replica(place) and (names := _names(place)):
        raise click.UsageError(f"{place} holds other files, such as {names[0]}: give the replica its own folder")


def _names(folder: str) -> list[str]:
    """The files in a folder; empty if it cannot be read, or is not a folder: the probe reports why."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_file() and not entry.name.startswith("."))
    return []


def _is_shown(step: ProbeStep) -> bool:
    """Whether to print a step. Without ``-v``, a feature that the store lacks and litelog does not need is left out."""
    from litelog.stores.probe import StepOutcome

    return step.outcome is not StepOutcome.NOT_OFFERED or bool(
        click.get_current_context().find_root().params["verbose"]
    )


def _usable_fencing(steps: list[ProbeStep]) -> list[Fencing]:
    """The ways of fencing that the store supports."""
    from litelog.stores.probe import FENCING_STEPS, StepOutcome

    lacking = {step.name for step in steps if step.outcome in {StepOutcome.FAILED, StepOutcome.SKIPPED}}
    if any(step.required and step.name in lacking - FENCING_STEPS for step in steps):
        return []
    return [Fencing.ISOLATED] if lacking & FENCING_STEPS else [Fencing.REQUIRED, Fencing.ISOLATED]


def _row(step: ProbeStep) -> tuple[str, str, str, str]:
    detail = f"{step.reason}: {step.meaning}" if step.reason else ""
    return step.name, step.outcome.value, f"{step.seconds * 1000:.2f}" if step.seconds else "-", detail
