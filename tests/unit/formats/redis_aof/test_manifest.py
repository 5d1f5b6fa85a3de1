"""The manifest of an append-only file: what Redis wrote is read, what litelog writes is the same, and all else is
refused."""

from __future__ import annotations

import tarfile

import pytest

from litelog.formats.redis_aof.manifest import is_manifest, read_manifest, write_manifest
from tests.builders.recorded_logs import FIXTURES

BASE = "file a.2.base.rdb seq 2 type b\n"


def recorded(scene: str) -> tuple[str, bytes]:
    with tarfile.open(FIXTURES / "redis_aof" / f"{scene}.tar.gz") as archive:
        (member,) = (each for each in archive.getmembers() if is_manifest(each.name))
        file = archive.extractfile(member)
        assert file is not None
        return member.name.rpartition("/")[2], file.read()


@pytest.mark.parametrize("scene", ["commands", "rewritten"])
def test_a_manifest_is_written_as_redis_writes_it(scene: str) -> None:
    name, content = recorded(scene)
    assert write_manifest(read_manifest(content)) == (name, content)


def test_files_that_redis_is_about_to_delete_are_left_out() -> None:
    content = "# a note\nfile a.1.base.rdb seq 1 type h\nfile a.4.incr.aof seq 4 type h\n" + BASE
    content += "file a.5.incr.aof seq 5 type i startoffset 0\n"
    assert read_manifest(content.encode()) == ["a.2.base.rdb", "a.5.incr.aof"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "file a.1.base.rdb seq 1 type h\n",
        BASE + "file a.3.base.rdb seq 3 type b\n",
        "file a.5.incr.aof seq 5 type i\nfile a.4.incr.aof seq 4 type i\n",
        "file a.4.incr.aof seq 4 type i\nfile a.4.incr.aof seq 4 type i\n",
        "file a.4.incr.aof seq 4 type b\n",
        "file a.4.base.aof seq 4 type i\n",
        'file "a b.4.incr.aof" seq 4 type i\n',
        "file ../a.4.incr.aof seq 4 type x\n",
        "\x00\x01",
        "file",
    ],
)
def test_another_content_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="it"):
        read_manifest(content.encode())


def test_a_base_file_from_before_redis_7_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="run BGREWRITEAOF"):
        read_manifest(b"file appendonly.aof seq 1 type b\n")
