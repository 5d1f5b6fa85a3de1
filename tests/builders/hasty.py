"""Lines of Python that a command runs first, so that a test of it need not wait as people do."""

from __future__ import annotations

RUN = """
from litelog_cli.entry import main
main()
"""
"""The command itself."""

QUICKLY_TRIED = """
from litelog.stores import probe, trial
trial.RACERS = 2
trial.ROUNDS = 1
probe.LISTED = 20
"""
"""A store is tried with a dozen requests before the first claim, rather than with more than a hundred."""

HASTY = f"""
from litelog.replicator import wiring
from litelog.shipping import backoff
from litelog.stores import retrying_store
retrying_store.READING = retrying_store.RetryPolicy(3, first_seconds=0.01, longest_seconds=0.02, together=True)
wiring.BEGINNING = retrying_store.RetryPolicy(4, first_seconds=0.01, longest_seconds=0.02)
backoff.MAX_DELAY_SECONDS = 0.1
{QUICKLY_TRIED}"""
"""What fails is tried again soon, and a server that is down is given up soon."""
