"""Consumers of a served log: their positions are with its daemon, and requests move them by compare-and-set."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import litelog
from litelog.aio import follow
from litelog.config.access import TokenConfig
from litelog.consumers import served_positions
from litelog.consumers.served_positions import ServedPositions
from litelog.errors import ConsumerMovedError, StoreError
from litelog.objects.consumer_position import Evidence
from replica_clients import http
from tests.builders.log_builder import make_log
from tests.builders.server_builder import TOKEN, Watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.slow

READER, CONSUMER = "token-of-a-reader-of-one-log-0123456789", "token-of-a-consumer-of-one-log-0123456789"
OTHER = "token-of-a-consumer-of-another-log-0123456789"


@contextmanager
def serving(tmp_path: Path, **settings: Any) -> Iterator[tuple[Watched, str]]:
    """A daemon that serves a log of three records, and the log's URL."""
    log = make_log(tmp_path / "log")
    log.roll(3)
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all", **settings}) as watched:
        watched.wait_until_ready()
        watched.wait_until(lambda: watched.ask("/logs").json["logs"][0]["acknowledged"] == 3 if not settings else True)
        yield watched, f"http://{watched.service.address}/logs/log"


def taken(consumer: litelog.Consumer) -> list[int]:
    return [record.sequence for record in consumer]


def test_a_consumer_of_a_served_log_continues_where_it_committed(tmp_path: Path) -> None:
    with serving(tmp_path) as (watched, url):
        with litelog.Consumer(url, "billing", follow=False) as first:
            assert next(first).sequence == 0
            first.commit()
            assert next(first).sequence == 1
        assert watched.ask("/logs/log/consumers/billing").json["next"] == 1
        with litelog.Consumer(url, "billing", follow=False) as second:
            assert taken(second) == [1, 2]
            second.commit()
        (listed,) = watched.ask("/logs/log/consumers").json["consumers"]
        assert (listed["consumer"], listed["next"], listed["lag_records"]) == ("billing", 3, 0)
        one = watched.ask("/logs/log/consumers/billing").json
        assert listed["updated"] == one["updated"]
        assert datetime.fromisoformat(listed["updated"]).utcoffset() == timedelta(0)
        assert watched.ask("/logs/log").json["consumers"] == [listed]
        assert watched.ask("/logs/log/records?from=consumer:billing").body == b""


def test_a_consumer_on_the_daemons_machine_and_one_elsewhere_are_the_same(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, url):
        near = litelog.Consumer(str(tmp_path / "log"), "billing", follow=False, state_dir=str(tmp_path / "state"))
        far = litelog.Consumer(url, "billing", follow=False)
        with near, far:
            assert [next(near).sequence, next(far).sequence] == [0, 0]
            near.commit()
            with pytest.raises(ConsumerMovedError, match="billing was moved to sequence 1 by another process"):
                far.commit()
            assert litelog.Consumer(url, "billing", follow=False).position == 1


def test_a_consumer_on_asyncio_reads_a_served_log(tmp_path: Path) -> None:
    async def consume(url: str) -> list[int]:
        async with follow(litelog.Consumer(url, "async", follow=False)) as records:
            found = [record.sequence async for record in records]
            await records.commit()
            return found

    with serving(tmp_path) as (watched, url):
        assert asyncio.run(consume(url)) == [0, 1, 2]
        assert watched.ask("/logs/log/consumers/async").json["next"] == 3


def test_positions_move_by_compare_and_set(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, url):
        positions = ServedPositions(url, {})
        kept = positions.of("billing")
        assert (kept.read(), positions.names(), kept.delete()) == (None, [], False)
        first = kept.move(None, 1, None, 0)
        second = kept.move(first, 2, Evidence(1, 1, 7), 0)
        assert (kept.read(), second.revision, second.evidence, positions.names()) == (
            second,
            2,
            Evidence(1, 1, 7),
            ["billing"],
        )
        for held in (first, None):
            with pytest.raises(ConsumerMovedError) as refused:
                kept.move(held, 3, None, 0)
            assert refused.value.next == 2
        assert kept.force(None, 0).next is None
        assert (kept.delete(), kept.read()) == (True, None)
        with pytest.raises(ConsumerMovedError):
            kept.move(second, 3, None, 0)
        positions.close()


def test_a_move_whose_answer_was_lost_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = []

    class Losing(http.HttpStore):
        def move_consumer(self, name: str, fields: Mapping[str, object]) -> Mapping[str, object] | None:
            answer = super().move_consumer(name, fields)
            if len(lost) < 2:
                lost.append(answer)
                raise StoreError("move", name, "the connection was reset")
            return answer

    def open_losing(url: str, _options: Mapping[str, object]) -> Losing:
        opened = http.open_store(url, {})
        return Losing(opened.url, lambda: None, urllib3.Timeout(connect=60, read=60), opened._pool)

    with serving(tmp_path) as (_, url):
        monkeypatch.setattr(served_positions, "open_store", open_losing)
        kept = ServedPositions(url, {}).of("billing")
        first = kept.move(None, 1, None, 0)
        assert (len(lost), first.next, first) == (2, 1, kept.read())
        assert kept.move(first, 2, None, 0).revision == 2


def test_the_position_outlives_the_daemon(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, url), litelog.Consumer(url, "billing", follow=False) as consumer:
        next(consumer)
        consumer.commit()
    with serving(tmp_path) as (_, url):
        assert taken(litelog.Consumer(url, "billing", follow=False)) == [1, 2]


def test_a_token_needs_the_right_to_move_consumers(tmp_path: Path) -> None:
    def write(name: str, token: str) -> str:
        path = tmp_path / name
        path.write_text(f"{token}\n")
        path.chmod(0o600)
        return str(path)

    tokens = (
        TokenConfig(file=write("reader", READER), rights=("read",)),
        TokenConfig(file=write("consumer", CONSUMER), rights=("read", "consume"), logs=("log",)),
        TokenConfig(file=write("other", OTHER), rights=("read", "consume"), logs=("other",)),
    )
    with serving(tmp_path, token_file=write("token", TOKEN), tokens=tokens) as (watched, url):
        watched.wait_until(
            lambda: watched.ask("/logs/log", headers=bearer(TOKEN)).json["acknowledged"] == 3,
        )
        path = "/logs/log/consumers/billing"
        for token, status in ((READER, 403), (OTHER, 404), ("", 401), (CONSUMER, 200), (TOKEN, 200)):
            for method, body in (("PUT", b'{"next": 1}'), ("DELETE", b"")):
                assert watched.ask(path, method, bearer(token), body).status == status, (token, method)
        assert taken(litelog.Consumer(remote(url, CONSUMER), "billing", follow=False)) == [0, 1, 2]
        with (
            litelog.Consumer(remote(url, READER), "audit", follow=False) as reader,
            pytest.raises(StoreError, match="403: the token does not have the right 'consume'"),
        ):
            next(reader)  # it gets its position with its first record


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def remote(url: str, token: str) -> litelog.ReplicaConfig:
    return litelog.ReplicaConfig(url=url, options={"token": token})


BAD_MOVES: list[tuple[bytes, str]] = [
    (b"", "the body must be a JSON object, such as"),
    (b"[]", "not a JSON object"),
    (b'{"next": -1}', "next is -1"),
    (b'{"next": 1.5}', "next is 1.5"),
    (b'{"sequence": 1}', "sequence: no such parameter"),
    (b'{"next": 1, "evidence": {"sequence": 1}}', "size is None"),
    (b'{"revision": 9223372036854775808}', "revision is 9223372036854775808"),
    (b'{"move": ""}', "move is ''"),
]


def test_a_bad_move_is_answered_in_json_and_moves_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as (watched, _):
        path = "/logs/log/consumers/billing"
        for body, said in BAD_MOVES:
            answer = watched.ask(path, "PUT", body=body)
            assert (answer.status, said in answer.json["error"]["message"]) == (400, True), (body, answer.body)
        bad_name = watched.ask("/logs/log/consumers/-", "PUT", body=b'{"next": 1}')
        assert (bad_name.status, "is not a name of a consumer" in bad_name.json["error"]["message"]) == (400, True)
        assert watched.ask(path, "PUT", body=json.dumps({"move": "x" * 5000}).encode()).status == 413
        assert (watched.ask(path).status, watched.ask(path, "DELETE").json["deleted"]) == (404, False)
        elsewhere = {"Origin": "http://elsewhere.example"}
        assert watched.ask(path, "PUT", elsewhere, b'{"next": 1}').status == 403
        moved = watched.ask(path, "PUT", body=b'{"revision": 0, "next": 2, "move": "mine"}')
        assert (moved.status, moved.json["revision"], moved.json["move"]) == (200, 1, "mine")
        late = watched.ask(path, "PUT", body=b'{"revision": 0, "next": 1}')
        assert (late.status, late.json["error"]["next"]) == (409, 2)
