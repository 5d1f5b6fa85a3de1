"""The order in which a restore syncs: a power cut after any call leaves all or nothing (P9)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from litelog.restore.journal import JOURNAL_NAME
from tests.faults.restore_copies import AFTER, DURING, OLDER, OTHER, SCRIPT, Replicas, held, place_with
from tests.faults.restore_walk import TEMPORARY
from tests.faults.traced_calls import Call, trace
from tests.faults.tracing import why_not_traced
from tests.warm import ROOT

pytestmark = pytest.mark.skipif(why_not_traced() is not None, reason=why_not_traced() or "")

CALLS = ("openat", "write", "pwrite64", "ftruncate", "fsync", "fdatasync", "rename", "renameat2", "linkat", "unlinkat")
SYNCS = ("fsync", "fdatasync")


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(tmp_path / "replicas")


def run(place: Path, replicas: Replicas, mode: str) -> list[Call]:
    command = [sys.executable, "-c", SCRIPT, *replicas.arguments(mode), str(place / "out")]
    return trace(command, CALLS, place.parent / "trace", ROOT)


def only(calls: list[Call], name: str, path: Path) -> Call:
    (found,) = [call for call in calls if call.name == name and call.names(path)]
    return found


def require_synced_between(calls: list[Call], path: Path, changes: list[Call], before: int) -> None:
    """Assert that ``path`` changed, and was synced after its last change and before line ``before`` of the trace."""
    assert changes, path
    last = max(call.ended for call in changes)
    syncs = [call for call in calls if call.name in SYNCS and call.names(path)]
    assert any(last < sync.began and sync.ended < before for sync in syncs), path


def entries_changed(calls: list[Call], folder: Path) -> list[Call]:
    """The calls that made or removed a name in ``folder`` through the folder's descriptor."""
    made = [call for call in calls if call.name == "openat" and "O_CREAT" in call.text]
    others = [call for call in calls if call.name in ("linkat", "unlinkat")]
    return [call for call in made + others if call.names(folder)]


def written(calls: list[Call], path: Path) -> list[Call]:
    return [call for call in calls if call.name in ("write", "pwrite64", "ftruncate") and call.names(path)]


@pytest.mark.parametrize("older", [None, OLDER], ids=["new", "delta"])
def test_files_then_their_folder_then_the_name_then_the_folder_above(
    tmp_path: Path, replicas: Replicas, older: dict[str, bytes] | None
) -> None:
    place = tmp_path / "place"
    if older is None:
        place.mkdir()
    else:
        place_with(place, older)
    calls = run(place, replicas, "delta")
    kept = [] if older is None else [name for name in DURING if older.get(name) == DURING[name]]
    expected = {name: data for name, data in DURING.items() if older is not None or name not in OTHER}
    assert held(place / "out") == expected
    temporary = place / TEMPORARY
    published = only(calls, "rename" if older is None else "renameat2", place / "out")
    for name in expected.keys() - set(kept):
        require_synced_between(calls, temporary / name, written(calls, temporary / name), published.began)
        assert not [call for call in written(calls, temporary / name) if call.ended > published.began]
    changed = [call for call in entries_changed(calls, temporary) if call.ended < published.began]
    assert any(JOURNAL_NAME in call.text for call in changed)
    require_synced_between(calls, temporary, changed, published.began)
    require_synced_between(calls, place, [published], before=1 << 62)


def changed_path(call: Call) -> Path:
    """The file that a call writes."""
    return Path(call.text.partition("<")[2].partition(">")[0])


def test_a_follower_syncs_appended_bytes_before_it_goes_on_to_another_file(tmp_path: Path, replicas: Replicas) -> None:
    """Runs of one log segment that wait at the same time share a sync: to a recovery they are one larger run."""
    place = place_with(tmp_path / "place", DURING)
    calls = run(place, replicas, "follow")
    assert held(place / "out") == AFTER
    out = place / "out"
    appends = [call for call in calls if call.name == "pwrite64" and f"<{out}/" in call.text]
    assert len(appends) >= len(AFTER) - len(DURING) + 1
    for number, append in enumerate(appends):
        path = changed_path(append)
        others = [call.began for call in appends[number:] if changed_path(call) != path]
        until = min(others, default=1 << 62)
        require_synced_between(calls, path, [append], until)
        if path.name not in DURING and append.text.rstrip().split(", ")[-1].startswith("0)"):
            require_synced_between(calls, out, [append], until)
