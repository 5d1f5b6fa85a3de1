"""Sealed segments of any compression, mixed in one generation, are restored, read, verified, repaired and copied."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.codec.frame_codecs import Compression, FrameCodec
from litelog.copying.execution import copy
from litelog.errors import ConfigError
from litelog.formats.registry import open_format
from litelog.objects.layout import sealed_key
from litelog.reading.replica_reader import ReplicaReader
from litelog.reading.sealed_reader import read_listed_footer
from litelog.shipping.context import Settings
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import make_log
from tests.builders.restoring import files_in, restore_to

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore
    from tests.builders.log_builder import LogBuilder

SETTINGS = Settings(snapshot_segments=1)


def ship_mixed(tmp_path: Path, store: ObjectStore) -> tuple[LogBuilder, Daemon]:
    """A log whose first log segments are sealed before its generation begins, and the others as they end, each with
    another compression than the one before."""
    log = make_log(tmp_path / "log")
    for _ in range(3):
        log.roll(5, 400)
    settings = replace(SETTINGS, compression=Compression.ZSTD)
    daemon = Daemon(log, store, str(tmp_path / "state"), settings=settings, backlog_sealer=True)
    for compression in (Compression.ZSTD, Compression.LZ4, Compression.LZ4HC, Compression.ZSTD):
        daemon.settings = replace(SETTINGS, compression=compression)
        daemon.restart()
        log.roll(4, 300)
        while daemon.sync():
            pass
    return log, daemon


def codecs(store: ObjectStore, daemon: Daemon) -> list[FrameCodec]:
    client = ObjectReplicaClient(store)
    return [read_listed_footer(client, info).codec for info in client.sealed_segments(daemon.generation)]


@pytest.mark.slow
def test_a_generation_of_mixed_codecs_is_one_log_to_all_readers(tmp_path: Path) -> None:
    store = MemoryStore("mixed")
    log, daemon = ship_mixed(tmp_path, store)
    found = codecs(store, daemon)
    assert found[:3] == [FrameCodec.ZSTD] * 3
    assert found[3:].count(FrameCodec.LZ4) == 2
    daemon.close()
    texts = {name: bytes(text) for name, text in log.texts.items()}
    (generation,) = read_replica(store).values()
    assert generation.files() == texts
    copied = MemoryStore("copied")
    copy(store, copied)
    for name, source in (("restored", store), ("of a copy", copied)):
        client = ObjectReplicaClient(source)
        restore_to(client, tmp_path / name)
        assert files_in(tmp_path / name) == texts
        report = verify(source, formats=open_format)
        assert (report.anomalies, report.failed) == ((), 0)
        with ReplicaReader(client) as reader:
            assert sum(len(columns.sequences) for columns in reader.batches()) == 3 * 5 + 4 * 4


@pytest.mark.slow
def test_a_damaged_frame_of_zstd_is_read_from_wal_segments(tmp_path: Path) -> None:
    store = MemoryStore("damaged")
    log, daemon = ship_mixed(tmp_path, store)
    index = codecs(store, daemon).index(FrameCodec.ZSTD, 3)
    daemon.close()
    key = sealed_key(daemon.generation, index)
    with store.open(key) as stream:
        body = bytearray(stream.read())
    body[40] ^= 1
    store.delete([key])
    store.put(key, [bytes(body)])
    restore_to(ObjectReplicaClient(store), tmp_path / "restored")
    assert files_in(tmp_path / "restored") == {name: bytes(text) for name, text in log.texts.items()}
    (damage,) = (anomaly for anomaly in verify(store, formats=open_format).anomalies if anomaly.harmful)
    assert key in str(damage)


def test_a_reader_without_the_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore("without")
    _, daemon = ship_mixed(tmp_path, store)
    daemon.close()
    monkeypatch.setitem(sys.modules, "zstandard", None)
    for read in (
        lambda: restore_to(ObjectReplicaClient(store), tmp_path / "restored"),
        lambda: verify(store, formats=open_format),
        lambda: copy(store, MemoryStore("copied without")),
        lambda: list(ReplicaReader(ObjectReplicaClient(store)).batches()),
    ):
        with pytest.raises(ConfigError, match=r"zstandard; run: .*\[zstd\]"):
            read()
    assert set(codecs(store, daemon)) == set(FrameCodec)  # footers need no package
