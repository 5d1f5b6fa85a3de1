"""Every fragment is compared with its name, and the gaps between them are found."""

from __future__ import annotations

from litelog.errors import StoreError
from litelog.fragments.verification import verify_journal
from replica_clients.memory import MemoryStore
from tests.builders.journal_fragments import compress, fragment


def journal(*fragments: tuple[str, bytes]) -> MemoryStore:
    store = MemoryStore("journal")
    for key, body in fragments:
        store.put(key, [body])
    return store


def test_all_is_well_where_each_fragment_is_as_its_name_says() -> None:
    seen: list[tuple[int, int]] = []
    store = journal(fragment(5, b"one\n"), fragment(9, b"two\n", ".sz"), fragment(5, b"one\ntwo\n", ".zst"))
    report = verify_journal(store, progress=lambda done, total: seen.append((done, total)))
    assert (report.fragments, report.content_bytes, report.first, report.next) == (3, 16, 5, 13)
    assert (report.faults, report.gaps, report.harmful, report.failed) == ([], [], 0, False)
    assert seen == [(8, 16), (12, 16), (16, 16)]


def test_each_fault_is_named() -> None:
    good, short, long, damaged, other = (fragment(begin, b"abcd\n") for begin in (0, 5, 10, 15, 20))
    store = journal(
        good,
        (short[0], compress(b"abcd", ".gz")),
        (long[0], compress(b"abcd\n\n", ".gz")),
        (damaged[0], damaged[1][:-5]),
        (other[0], compress(b"abce\n", ".gz")),
        fragment(100, b"later\n"),
    )
    report = verify_journal(store)
    kinds = [("short", short[0]), ("long", long[0]), ("damaged", damaged[0]), ("damaged", other[0])]
    assert [(fault.kind, fault.key) for fault in report.faults] == kinds
    assert report.gaps == [(25, 100)]
    assert report.harmful == 5
    stated = report.as_json()
    assert [anomaly["kind"] for anomaly in stated["anomalies"]] == ["short", "long", "damaged", "damaged"]
    assert stated["gaps"] == [{"first": 25, "next": 100}]


class Unreadable(MemoryStore):
    def open(self, key: str, byte_range: object = None) -> object:  # type: ignore[override]
        raise StoreError("get", key, "denied")


def test_a_fragment_that_cannot_be_read_is_not_judged() -> None:
    store = Unreadable("journal")
    key, body = fragment(0, b"x")
    store.put(key, [body])
    report = verify_journal(store)
    assert [fault.kind for fault in report.faults] == ["unreadable"]
    assert (report.harmful, report.failed) == (0, True)
