"""A soak: one daemon runs for long over many logs that appear and disappear.

Writers roll log segments, the daemon is restarted and reloaded, the store fails all the time, and logs are restored in
between. Nothing is lost, and the daemon's resources do not grow.

LITELOG_SOAK_SECONDS is the duration: by default ten seconds, at night sixty, and at least three rounds; 900 makes it a
quarter of an hour. LITELOG_SOAK_SEED chooses the events.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")
pytest.importorskip("prometheus_client")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.builders.fault_proxy import Fault, When, fault_proxy
from tests.faults.figures import report
from tests.faults.soak_complaints import check_logged
from tests.faults.soak_course import Soak
from tests.faults.soak_gauges import assert_flat, growth
from tests.sampling import times

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.servers import S3Server
    from tests.warm import Warm

SECONDS = float(os.environ.get("LITELOG_SOAK_SECONDS", times("10", at_night="60")))
"""The shortest duration, without the checks at the end."""

SEED = int(os.environ.get("LITELOG_SOAK_SEED", "1"))

FAULT_RATE = 0.04
FAULTS = (
    (Fault.SLOW_DOWN, When.BEFORE),
    (Fault.SLOW_DOWN, When.AFTER),
    (Fault.INTERNAL_ERROR, When.BEFORE),
    (Fault.INTERNAL_ERROR, When.AFTER),
    (Fault.RESET, When.BEFORE),
    (Fault.RESET, When.AFTER),
    (Fault.HANG, When.BEFORE),
    (Fault.HANG, When.LATE),
    (Fault.TRUNCATE, When.AFTER),
    (Fault.FLIP, When.AFTER),
)

MIN_RESTARTS, MIN_ROUNDS = times((1, 3), at_night=(3, 6))
WARMING_ROUNDS = 2
"""The rounds after which the largest number of logs at a time has been reached."""


@pytest.mark.timeout(SECONDS * 3 + 1200)
def test_nothing_is_lost_and_nothing_grows(server: S3Server, warm: Warm, tmp_path: Path, credentials: None) -> None:
    sys.stdout.write(f"LITELOG_SOAK_SEED={SEED} LITELOG_SOAK_SECONDS={SECONDS:g}\n")
    with ExitStack() as stack:
        proxy = stack.enter_context(fault_proxy(server.endpoint))
        soak = stack.enter_context(closing(Soak(tmp_path, server, proxy, warm, SEED)))
        proxy.plan.at_random(FAULT_RATE, SEED, FAULTS)
        began = time.monotonic()
        while len(soak.lives) < MIN_RESTARTS or time.monotonic() - began < SECONDS / 4:
            soak.restart()
        soak.start()
        soak.daemon.wait_until_ready()
        soak.follow()
        for _ in range(WARMING_ROUNDS):
            soak.round()
        gauges = []
        while len(gauges) < MIN_ROUNDS or time.monotonic() - began < SECONDS:
            gauges.append(soak.round())
            sys.stdout.write(f"{time.monotonic() - began:.0f} s: {gauges[-1]}\n")
        soak.finish()
        seconds = time.monotonic() - began
        soak.counts += check_logged(soak.lives)
        restores = soak.check_replicas()
        figures = {**soak.counts, **{f"errors of syncs: {kind}": count for kind, count in soak.errors.items()}}
        report(
            "soak",
            seed=SEED,
            seconds=round(seconds),
            rounds=len(gauges),
            lives=len(soak.lives),
            restores_of_all=restores,
            records=sum(soak.look().values()),
            faults=proxy.injected.total(),
            files_a_round=round(growth(gauges, "files"), 2),
            sockets_a_round=round(growth(gauges, "sockets"), 2),
            kilobytes_a_round=round(growth(gauges, "resident_bytes") / 1000),
            threads=max(gauge.threads for gauge in gauges),
            acknowledged_records_lost=0,
            **{name.replace(", ", " ").replace(": ", " ").replace(" ", "_"): n for name, n in sorted(figures.items())},
        )
        assert_flat(gauges)
