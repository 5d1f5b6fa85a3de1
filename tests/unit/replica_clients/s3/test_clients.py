"""Replicas with the same settings share a client, which saves memory. Other settings need another client."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")

from litelog.errors import StoreError
from replica_clients.s3 import open_store
from tests.builders.servers import CREDENTIALS, REGION, Answer, Request, ScriptedServer, error_answer

if TYPE_CHECKING:
    from pathlib import Path

STORES = 200

STORE_BYTES = 100 << 10
"""More than a store with a shared client uses, and a fifth of what a store with its own client uses."""

CLIENTS = 5

CLIENT_BYTES = 3 << 20
"""More than a client uses, and a quarter of what botocore's description of S3 uses."""

COUNTING = f"""
import sys
from replica_clients.s3 import open_store

def resident():
    facts = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(facts["RssAnon"].split()[0]) * 1024

options = {{"endpoint": "http://127.0.0.1:1", "region": "{REGION}"}}
stores = [open_store("s3://bucket/first", options)]
before = resident()
stores += [open_store(sys.argv[1].format(number), options) for number in range(int(sys.argv[2]))]
print(resident() - before)
"""


@pytest.mark.parametrize(
    ("url", "count", "limit"),
    [
        pytest.param("s3://bucket/{}", STORES, STORE_BYTES, id="no client in a bucket that has one"),
        pytest.param("s3://bucket-{}/log", CLIENTS, CLIENT_BYTES, id="no description of S3 in another bucket"),
    ],
)
def test_each_further_store_costs_limited_memory(url: str, count: int, limit: int) -> None:
    command = [sys.executable, "-c", COUNTING, url, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < count * limit


def test_they_share_connections_until_the_last_one_is_closed() -> None:
    with ScriptedServer(lambda _: Answer()) as server:
        options = {"endpoint": server.endpoint, "region": REGION, **CREDENTIALS}
        first, second = (open_store(f"s3://bucket/{name}", options) for name in ("first", "second"))
        first.put("key", [b"x"])
        second.put("key", [b"x"])
        first.close()
        first.close()
        second.put("another", [b"x"])
        assert server.connections == 1
        second.close()
        third = open_store("s3://bucket/third", options)
        third.put("key", [b"x"])
        third.close()
        assert server.connections == 2
        paths = [request.path for request in server.requests]
    assert paths == [f"/bucket/{key}" for key in ("first/key", "second/key", "second/another", "third/key")]


@pytest.mark.parametrize("option", ["access-key-id", "region", "headers"])
def test_those_that_are_spoken_to_in_another_way_do_not(option: str) -> None:
    others = {"access-key-id": "AKOTHER", "region": "eu-west-9", "headers": {"x-other": "9"}}
    with ScriptedServer(lambda _: Answer()) as server:
        options = {"endpoint": server.endpoint, "region": REGION, **CREDENTIALS}
        for more in ({}, {option: others[option]}):
            open_store("s3://bucket/log", {**options, **more}).put("key", [b"x"])
        first, second = (str(request.headers) for request in server.requests)
    said = {"access-key-id": "AKOTHER", "region": "eu-west-9", "headers": "x-other"}[option]
    assert said not in first
    assert said in second


def test_those_that_find_other_credentials_in_the_environment_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(lambda _: Answer()) as server:
        stores = []
        for key in ("AKONE", "AKTWO"):
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
            stores.append(open_store("s3://bucket/log", {"endpoint": server.endpoint, "region": REGION}))
            stores[-1].put("key", [b"x"])
        signed = [request.headers["authorization"] for request in server.requests]
    assert "AKONE" in signed[0]
    assert "AKTWO" in signed[1]


def test_credentials_that_ran_out_are_looked_up_again_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)

    def answer(request: Request) -> Answer:
        return Answer() if "AKNEW" in request.headers["authorization"] else error_answer(400, "ExpiredToken")

    with ScriptedServer(answer) as server:
        file.write_text("[default]\naws_access_key_id = AKOLD\naws_secret_access_key = x\n")
        options = {"endpoint": server.endpoint, "region": REGION}
        first, second = (open_store(f"s3://bucket/{name}", options) for name in ("first", "second"))
        file.write_text("[default]\naws_access_key_id = AKNEW\naws_secret_access_key = x\n")
        with pytest.raises(StoreError, match="looked up again"):
            first.put("key", [b"x"])
        second.put("key", [b"x"])
        first.put("key", [b"x"])
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("options", "variable", "known"),
    [
        ({}, None, True),
        ({"region": "cn-north-1"}, None, True),
        ({"endpoint": "https://s3.dualstack.eu-west-1.amazonaws.com"}, None, True),
        ({"endpoint": "https://bucket.vpce-1a2b.s3.eu-west-1.vpce.amazonaws.com"}, None, True),
        ({"endpoint": "https://s3-fips.dualstack.us-gov-west-1.amazonaws.com"}, None, True),
        ({"endpoint": "https://s3.eu-west-1.api.aws"}, None, True),
        ({"endpoint": "https://s3-accelerate.amazonaws.com"}, None, True),
        ({"endpoint": "https://s3express-use1-az4.us-east-1.amazonaws.com"}, None, True),
        ({"endpoint": "https://minio-12.eu-west-1.elb.amazonaws.com"}, None, False),
        ({"endpoint": "https://s3-12.eu-west-1.elb.amazonaws.com"}, None, False),
        ({"endpoint": "https://s3-12.elb.eu-west-1.amazonaws.com"}, None, False),
        ({"endpoint": "https://ec2-192-0-2-1.eu-west-1.compute.amazonaws.com:9000"}, None, False),
        ({"endpoint": "http://127.0.0.1:9000"}, None, False),
        ({"endpoint": "https://amazonaws.com.example.org"}, None, False),
        ({"endpoint": "https://notamazonaws.com"}, None, False),
        ({}, "http://127.0.0.1:9000", False),
    ],
)
def test_only_amazons_hosts_are_known_to_list_before_an_answer(
    options: dict[str, str], variable: str | None, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    if variable is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", variable)
    with closing(open_store("s3://bucket", {"region": REGION, **options})) as store:
        assert store.is_known_to_list == known


@pytest.mark.parametrize(
    ("server", "known"),
    [
        ("MinIO", True),
        ("VERSITYGW", True),
        ("AmazonS3", False),
        ("MinIO Console", False),
        ("nginx", False),
        ("", False),
    ],
)
def test_servers_that_were_tested_to_list_are_known_by_their_last_answer(server: str, known: bool) -> None:
    said = {"Server": server} if server else {}
    with (
        ScriptedServer(lambda request: Answer(headers={} if "/other" in request.path else said)) as script,
        closing(open_store("s3://bucket", {"endpoint": script.endpoint, "region": REGION, **CREDENTIALS})) as store,
    ):
        assert not store.is_known_to_list, "nothing has answered yet"
        store.put("key", [b"x"])
        assert store.is_known_to_list == known
        store.put("other", [b"x"])
        assert not store.is_known_to_list
