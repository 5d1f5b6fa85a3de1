"""Lines of Python that shorten the waits of a command before it starts, so that its tests are quick."""

from __future__ import annotations

RUN_COMMAND = """
from litelog_cli.entry import main
main()
"""
"""Runs the command itself."""

SHORT_LISTING = """
from litelog.stores import trial
trial.LISTED = 20
"""
"""``litelog check``, and an owner before its first claim, list twenty objects rather than a thousand."""

SHORT_TRIAL = f"""
from litelog.stores import trial
trial.RACERS = 2
trial.ROUNDS = 1
{SHORT_LISTING}"""
"""Before the first claim, litelog tries the store with a dozen requests rather than with more than a hundred."""

SHORT_WAITS = f"""
from litelog.replicator import wiring
from litelog.shipping import backoff
from litelog.stores import retrying_store
retrying_store.READING = retrying_store.RetryPolicy(3, first_seconds=0.01, longest_seconds=0.02, together=True)
wiring.BEGINNING = retrying_store.RetryPolicy(4, first_seconds=0.01, longest_seconds=0.02)
backoff.next_delay = lambda delay, random: 0.1
{SHORT_TRIAL}"""
"""The command retries after a few milliseconds, and soon gives up on a server that is down."""
