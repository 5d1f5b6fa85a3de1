"""litelog reads and continues the replicas, state folders and configurations of a released version.

``earlier_versions/0.1.0.tar.gz`` was written by litelog 0.1.0 in ``/tmp/litelog-0.1.0``. It never changes. It holds

- ``log`` in the format ``litelog``, and ``replica``, in which the log's second history diverged from its first one,
- ``lines`` in the format ``lines``, and ``lines-replica``, whose fencing is isolated,
- ``state``, the state folder of the daemon that wrote both replicas, and
- ``litelog.yml``, a configuration with every key of that version.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.codec.checksum import crc32c
from litelog.log.replica_registry import log_state_folder
from litelog.replicator.wiring import state_folder_of

if TYPE_CHECKING:
    from conftest import Command

EARLIER = Path(__file__).parent / "earlier_versions"


@pytest.fixture
def litelog(litelog: Command) -> Command:
    """The command in a folder with everything that 0.1.0 wrote. The state is renamed to fit this folder."""
    with tarfile.open(EARLIER / "0.1.0.tar.gz") as archive:
        archive.extractall(litelog.folder, filter="data")
    state = litelog.folder / "state"
    for log, replica in (("log", "replica"), ("lines", "lines-replica")):
        path, url = litelog.folder / log, f"file://{litelog.folder / replica}"
        (known,) = state.glob(f"{log}-*")
        (known,) = [known.rename(log_state_folder(str(state), str(path)))]
        (of_replica,) = [each for each in known.iterdir() if each.is_dir()]
        stand_in(of_replica / "state.json", path)
        of_replica.rename(state_folder_of(str(state), str(path), url, url))
    return litelog


def stand_in(state: Path, log: Path) -> None:
    """Change a state so that ``log`` counts as its daemon's folder. Otherwise the copy would begin a generation."""
    fields = json.loads(state.read_bytes())
    version, _ = fields.pop("version"), fields.pop("checksum")
    fields["folder_inode"] = log.stat().st_ino
    checksum = crc32c(json.dumps(fields, sort_keys=True).encode())
    state.write_text(json.dumps({"version": version, "checksum": checksum, **fields}))


def contents(folder: Path) -> dict[str, str]:
    """The digests of a log's files."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.log")}


@pytest.mark.parametrize(("log", "replica"), [("log", "replica"), ("lines", "lines-replica")])
def test_a_replica_of_an_earlier_version_is_restored_byte_for_byte(litelog: Command, log: str, replica: str) -> None:
    done = litelog("restore", replica, "-o", "restored")
    assert done.code == 0, done.err
    assert contents(litelog.folder / "restored") == contents(litelog.folder / log)
    assert litelog("verify", replica, "--against", log, "--state-dir", "state").code == 0


def test_a_generation_that_an_earlier_version_left_is_restored(litelog: Command) -> None:
    done = litelog("restore", "replica", "--generation", "00000001df984b33", "-o", "before")
    assert done.code == 0, done.err
    assert litelog("cat", "before").out.splitlines()[-1].startswith("value 219 ")
    assert litelog("cat", "log").out.splitlines()[-1].startswith("value 239 ")


@pytest.mark.parametrize(
    ("log", "replica", "options"),
    [
        ("log", "replica", []),
        ("lines", "lines-replica", ["--format", "lines", "--pattern", "app-*.log", "--fencing", "isolated"]),
    ],
)
def test_a_state_of_an_earlier_version_continues_its_generation(
    litelog: Command, log: str, replica: str, options: list[str]
) -> None:
    before = litelog("generations", "--json", replica).lines
    if log == "log":
        litelog("append", log, text="one more\n")
    else:
        Path(litelog.folder, "lines", "app-4.log").write_text("one more\n")
    done = litelog("replicate", "--once", "--state-dir", "state", *options, log, replica)
    assert done.code == 0, done.err
    assert "begins" not in done.err
    after = litelog("generations", "--json", replica).lines
    assert [each["generation"] for each in after] == [each["generation"] for each in before]
    assert litelog("cat", replica).out.splitlines()[-1] == "one more"
    assert litelog("verify", replica, "--against", log, "--state-dir", "state").code == 0


def test_a_configuration_of_an_earlier_version_is_valid(litelog: Command) -> None:
    secrets = {"MINIO_KEY": "key", "MINIO_SECRET": "secret"}
    done = litelog("config", "check", "litelog.yml", **secrets)
    assert done.code == 0, done.err
