"""Spark reads an encrypted replica with an identity, on either engine, and says what is missing without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from litelog import Config, LogConfig, ReplicaConfig, Replicator
from litelog.config.entries import EncryptionConfig
from litelog.errors import ConfigError
from litelog.spark.query.dataframe import read
from litelog.spark.sink.options import parse_write_options
from litelog.spark.sink.plan import plan_write
from litelog.system.clock import SystemClock
from tests.builders.encrypted import make_identity, write_identity
from tests.builders.log_builder import make_log

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = 9


@pytest.fixture
def replica(tmp_path: Path) -> tuple[str, str]:
    """The place of an encrypted replica with sealed segments and WAL segments, and the path of its identity."""
    log = make_log(tmp_path / "log")
    for _ in range(2):
        log.roll(3)
    log.append(3)
    secret, recipients, _ = make_identity()
    place = f"file://{tmp_path}/replica"
    encrypted = ReplicaConfig(url=place, snapshot_segments=1, encryption=EncryptionConfig(recipients=recipients.public))
    config = Config(logs=(LogConfig(path=log.folder, replicas=(encrypted,)),))
    Replicator(config, state_dir=str(tmp_path / "state"), host="here").run(once=True)
    return place, write_identity(tmp_path / "identity", secret)


def test_the_source_and_the_fast_path_read_with_an_identity(spark: Any, replica: tuple[str, str]) -> None:
    place, identity = replica
    frames = [
        spark.read.format("litelog").option("identityFile", identity).load(place),
        read(spark, place, options={"identityFile": identity}),
    ]
    for frame in frames:
        assert [row.sequence for row in frame.orderBy("sequence").collect()] == list(range(RECORDS))
        assert frame.count() == RECORDS


def test_without_an_identity_the_error_says_what_to_name(spark: Any, replica: tuple[str, str]) -> None:
    with pytest.raises(Exception, match="is encrypted; name the file of your identity"):
        spark.read.format("litelog").load(replica[0]).collect()


def test_spark_does_not_write_to_an_encrypted_replica(replica: tuple[str, str]) -> None:
    options = parse_write_options({"path": replica[0], "takeover": "true"})
    with pytest.raises(ConfigError, match="is encrypted, and Spark writes only replicas that are not: append"):
        plan_write(options, SystemClock(), overwrite=False)
