"""The logs of a soak, their replicas and the configuration that names them.

It restores logs from replicas, and compares them with the written ones.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from litelog.formats.litelog import LitelogFormat
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.file import FileStore
from replica_clients.s3 import open_store
from tests.builders.servers import REGION
from tests.faults.processes import count_records, litelog, segments

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore
    from tests.builders.fault_proxy import FaultProxy
    from tests.builders.servers import S3Server
    from tests.warm import Warm

MAX_LAG = "5s"
KINDS = ("file", "s3")

TIMEOUT = "3s"
"""The time limit of a request. If a dozen processes share a processor, the server takes more than a second to answer,
and with a shorter limit no request would succeed."""

SPECIAL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "truncated": ({"truncate": {"max-bytes": "24KiB"}}, {"snapshot-segments": 2}),
    "retained": ({}, {"retention": {"max-snapshots": 2, "max-age": "1h"}, "snapshot-segments": 2}),
    "scrubbed": ({}, {"scrub-interval": "2s", "scrub-rate": "64MiB"}),
    "reloaded": ({}, {}),
    "named": ({}, {}),
}
"""Logs with their own entries in the configuration: the settings of the log, and of its replicas."""

FOUND = ("kept/one", "kept/two")
"""Found logs that stay."""


class World:
    """All logs, each with a replica in a folder and a replica in S3, which daemons reach through the proxy."""

    def __init__(self, folder: Path, server: S3Server, proxy: FaultProxy, warm: Warm) -> None:
        self.folder = folder
        self.config = folder / "config.yml"
        self._direct = folder / "direct.yml"
        """The same configuration without the proxy."""
        self.socket = folder / "daemon.sock"
        self.bucket = server.make_bucket()
        self._server, self._proxy, self._warm = server, proxy, warm
        self._restores = 0
        (folder / "found").mkdir()
        self.configure()

    def configure(self, turn: int = 0) -> None:
        """Write the configuration. From turn to turn one log gets other settings, and another is added or left out."""
        logs = []
        for name, (of_log, of_replica) in SPECIAL.items():
            if name == "named" and turn % 2:
                continue
            more = {"sync-interval": f"{250 + turn % 2}ms"} if name == "reloaded" else {}
            replicas = [{"url": self.url(kind, name), **of_replica, **more, **self._options(kind)} for kind in KINDS]
            logs.append({"path": self.path(name), **of_log, "replicas": replicas})
        found = [{"url": self.url(kind, "found/{name}"), **self._options(kind)} for kind in KINDS]
        logs.append({"dir": str(self.folder / "found"), "pattern": "*/*", "replicas": found})
        values = {
            "state-dir": str(self.folder / "state"),
            "addr": f"unix:{self.socket}",
            "max-lag": MAX_LAG,
            "sync-interval": "250ms",
            "poll-interval": "200ms",
            "snapshot-segments": 4,
            "logs": logs,
        }
        text = json.dumps(values)
        past_proxy = text.replace(json.dumps(self._options("s3"))[1:-1], json.dumps(self._server_options())[1:-1])
        assert self._proxy.endpoint not in past_proxy
        for path, content in ((self.config, text), (self._direct, past_proxy)):
            draft = path.with_suffix(".draft")
            draft.write_text(content)
            draft.replace(path)

    def path(self, name: str) -> str:
        """A log's folder."""
        return str(self.folder / ("logs" if name in SPECIAL else "found") / name)

    def url(self, kind: str, name: str) -> str:
        """The URL of a log's replica."""
        name = name if name in SPECIAL or name.startswith("found/") else f"found/{name}"
        return f"file://{self.folder}/replicas/{name}" if kind == "file" else f"s3://{self.bucket}/{name}"

    def gone(self, name: str) -> str:
        """The place to which a removed log is moved, so that it can be compared."""
        place = self.folder / "gone" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        return str(place)

    def move_away(self, name: str) -> None:
        """Remove a log without a writer."""
        os.rename(self.path(name), self.gone(name))

    def count_objects(self, kind: str, name: str) -> dict[str, int]:
        """The number of objects of each kind, with the metric's names, without the proxy."""
        store = self._open(kind, name)
        keys = [info.key for info in store.list("generations/")]
        store.close()
        parts = {"wal": "/wal/", "sealed": "/segments/", "snapshot": "/snapshots/"}
        return {what: sum(part in key for key in keys) for what, part in parts.items()}

    def check_verified(self, kind: str, name: str) -> None:
        """Verify a replica during writes, without the proxy: verify would report a flipped answer as an anomaly."""
        done = self._litelog(self._direct, "verify", self.url(kind, name), "--quiet")
        assert done.returncode == 0, f"{name} in {kind}: {done.stdout}{done.stderr}"

    def _litelog(self, config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a verb."""
        return litelog(self._warm, *arguments, "--config", str(config))

    def check_restored(self, kind: str, name: str, at_least: int) -> int:
        """Restore a log that is being written, in a process, through the proxy and all its faults.

        Returns the number of records. AssertionError if there are fewer than ``at_least``."""
        output = self._output()
        done = self._litelog(self.config, "restore", self.url(kind, name), "-o", str(output), "--quiet")
        assert done.returncode == 0, f"{name} from {kind}: {done.stderr}"
        return self._check(output, self.path(name), at_least, whole=False)

    def check_whole(self, kind: str, name: str, written: int) -> None:
        """Restore a log without a writer, and check that the restored log is complete."""
        gone = self.gone(name)
        assert self._check_past_proxy(kind, name, gone if os.path.exists(gone) else self.path(name), written, True)

    def check_beginning(self, kind: str, name: str, at_least: int) -> int:
        """Restore a log that was removed while it was shipped: a prefix, with at least ``at_least`` records."""
        return self._check_past_proxy(kind, name, self.gone(name), at_least, False)

    def check_stored(self, kind: str, name: str, at_least: int) -> int:
        """Restore a log that is being written, without the proxy: a prefix, with at least ``at_least`` records."""
        return self._check_past_proxy(kind, name, self.path(name), at_least, False)

    def _check_past_proxy(self, kind: str, name: str, log: str, at_least: int, whole: bool) -> int:
        store = self._open(kind, name)
        client = ObjectReplicaClient(store)
        log_format, output = LitelogFormat(), self._output()
        restore(client, find_plan(client, Target(), log_format), str(output), log_format=log_format)
        client.close()
        return self._check(output, log, at_least, whole=whole)

    def _check(self, output: Path, log: str, at_least: int, *, whole: bool) -> int:
        """Check that the restored log begins at or before the source's first record, and that the log segments that the
        source still has are the same byte for byte."""
        restored = segments(output)
        source = segments_that_stay(log)
        last = max(restored)
        for name, text in restored.items():
            if name in source:
                same = source[name] == text if whole or name != last else source[name].startswith(text)
                assert same, f"{log}/{name} was restored with other bytes"
        first = min(source)
        missing = [name for name in source if name not in restored and (whole or name < last)]
        assert not missing, f"{log}: {missing} were not restored"
        assert min(restored) <= first
        records = count_records(output)
        assert records >= at_least, f"{log}: {at_least} records were acknowledged, {records} restored"
        assert not whole or records == at_least, f"{log}: {at_least} records were written, {records} restored"
        shutil.rmtree(output)
        return records

    def _output(self) -> Path:
        self._restores += 1
        return self.folder / f"restored-{self._restores}"

    def _options(self, kind: str) -> dict[str, Any]:
        """The options of a replica for requests through the proxy."""
        if kind == "file":
            return {}
        endpoint = self._proxy.endpoint
        return {
            "options": {"endpoint": endpoint, "region": REGION, "read-timeout": TIMEOUT, "connect-timeout": TIMEOUT}
        }

    def _server_options(self) -> dict[str, Any]:
        """The options of a replica for requests without the proxy. They have no time limits."""
        return {"options": {"endpoint": self._server.endpoint, "region": REGION}}

    def _open(self, kind: str, name: str) -> ObjectStore:
        url = self.url(kind, name)
        if kind == "file":
            return FileStore(url.removeprefix("file://"))
        return open_store(url, self._server.options())


def segments_that_stay(log: str) -> dict[str, bytes]:
    """The log segments of a log, except those that a truncation removes meanwhile."""
    found = {}
    for name in sorted(os.listdir(log)):
        if name.endswith(".log"):
            try:
                with open(os.path.join(log, name), "rb") as file:
                    found[name] = file.read()
            except FileNotFoundError:
                continue
    return found
