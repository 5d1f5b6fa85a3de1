"""``litelog cat`` and ``litelog verify`` with the fragments of a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders.journal_fragments import EXTENSIONS, compress, fragment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.litelog_cli.conftest import InProcess

CONTENTS = [b"".join(b'{"n": %d}\n' % (10 * part + number) for number in range(10)) for part in range(len(EXTENSIONS))]
SIZES = [len(content) for content in CONTENTS]


@pytest.fixture
def journal(command: InProcess) -> Path:
    folder = command.folder / "clicks" / "date=2026-11-25"
    folder.mkdir(parents=True)
    at = 0
    for content, extension in zip(CONTENTS, EXTENSIONS, strict=True):
        key, body = fragment(at, content, extension)
        (folder / key).write_bytes(body)
        at += len(content)
    return folder


def of_codec(journal: Path, extension: str) -> Path:
    (path,) = (path for path in journal.iterdir() if path.suffix == extension)
    return path


def test_a_journal_is_printed_line_by_line(command: InProcess, journal: Path) -> None:
    for place in ("clicks", f"file://{journal.parent}"):
        done = command("cat", "--format", "gazette", place)
        assert (done.code, done.out, done.err) == (0, b"".join(CONTENTS).decode(), "")


def test_offsets_are_sequences(command: InProcess, journal: Path) -> None:
    first, stop = SIZES[0], SIZES[0] + 20
    done = command("cat", "--format", "gazette", "--json", "--from", str(first), "--to", str(stop), "clicks")
    assert done.lines == [
        {"sequence": first, "timestamp": None, "key": None, "value": '{"n": 10}'},
        {"sequence": first + 10, "timestamp": None, "key": None, "value": '{"n": 11}'},
    ]


def test_the_end_is_after_the_last_fragment(command: InProcess, journal: Path) -> None:
    done = command("cat", "--format", "gazette", "--from", "end", "clicks")
    assert (done.code, done.out) == (0, "")
    assert journal.is_dir()


def test_a_gap_is_reported_and_skipped(command: InProcess, journal: Path) -> None:
    of_codec(journal, ".sz").unlink()
    done = command("cat", "--format", "gazette", "clicks")
    gap = f"{sum(SIZES[:2])} to {sum(SIZES[:3]) - 1}"
    assert done.code == 0
    assert done.out == b"".join(CONTENTS[:2] + CONTENTS[3:]).decode()
    assert f"no fragment holds the bytes {gap} of the journal" in done.err
    verified = command("verify", "--format", "gazette", "clicks")
    assert verified.code == 6
    assert f"gap: no fragment holds the bytes {gap}" in verified.out
    assert verified.out.splitlines()[-1] == "1 anomaly"


def test_a_damaged_fragment_ends_the_output_before_it(command: InProcess, journal: Path) -> None:
    path = of_codec(journal, ".zst")
    path.write_bytes(compress(CONTENTS[3].replace(b"35", b"36"), ".zst"))
    done = command("cat", "--format", "gazette", "clicks")
    assert (done.code, done.out) == (6, b"".join(CONTENTS[:3]).decode())
    assert f"{path.name}: SHA-1 of the content is" in done.err
    assert "litelog verify --format gazette file://" in done.err
    assert "several replicas" not in done.err
    verified = command("verify", "--format", "gazette", "--json", "clicks")
    assert verified.code == 6
    ((report),) = verified.lines
    assert [anomaly["kind"] for anomaly in report["anomalies"]] == ["damaged"]
    assert (report["fragments"], report["first"], report["next"]) == (6, 0, sum(SIZES))


def test_a_journal_without_faults_is_well(command: InProcess, journal: Path) -> None:
    done = command("verify", "--format", "gazette", "clicks")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "all is well"
    assert f"from offset 0 to {sum(SIZES)}" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cat", "--pattern", "*"], "--pattern is not for the fragments of a journal"),
        (["cat", "--generation", "1"], "--generation is not for the fragments of a journal"),
        (["cat", "--from", "1day"], "a journal has no times"),
        (["cat", "--from", "latest"], "a journal has no times"),
        (["verify", "--restore-drill"], "--restore-drill is not for the fragments of a journal"),
        (["verify", "--sample", "5%"], "--sample is not for the fragments of a journal"),
    ],
)
def test_what_a_journal_has_not_is_refused(command: InProcess, journal: Path, words: list[str], message: str) -> None:
    done = command(*words, "--format", "gazette", "clicks")
    assert done.code == 2
    assert message in done.err


@pytest.mark.parametrize("verb", ["cat", "verify"])
def test_a_place_without_fragments_is_named(command: InProcess, verb: str) -> None:
    (command.folder / "empty").mkdir()
    done = command(verb, "--format", "gazette", "empty")
    assert done.code == 3
    assert "no fragments of a journal are here" in done.err
