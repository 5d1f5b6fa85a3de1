"""If credentials cannot be renewed, that replica fails. The failure ends once there are new credentials."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")

from litelog.errors import ConfigError, StoreError
from replica_clients.s3 import open_store
from tests.builders.servers import REGION, Answer, Request, ScriptedServer, error_answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GARBAGE = "canary-of-a-secret-4411" * 8


class Source:
    """A profile, ``role``. A program prints its credentials, or STS returns them for a role."""

    def __init__(self, folder: Path) -> None:
        self._config = folder / "config"
        self._printed = folder / "printed"

    def print(self, text: str) -> None:
        self._printed.write_text(text)

    def print_key(self, left: timedelta) -> None:
        until = (datetime.now(UTC) + left).isoformat()
        key = {"Version": 1, "AccessKeyId": "AKPRINTED", "SecretAccessKey": "x" * 20, "Expiration": until}
        self.print(json.dumps(key))

    def by_program(self) -> None:
        self._config.write_text(f"[profile role]\nregion = {REGION}\ncredential_process = cat {self._printed}\n")

    def by_role(self) -> None:
        role = f"role_arn = arn:aws:iam::123456789012:role/writer\nsource_profile = base\nregion = {REGION}\n"
        base = f"[profile base]\naws_access_key_id = AKBASE\naws_secret_access_key = x\nregion = {REGION}\n"
        self._config.write_text(f"[profile role]\n{role}{base}")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    return Source(tmp_path)


def given(left: timedelta) -> Answer:
    """The answer of STS with a key that is valid for ``left``."""
    until = (datetime.now(UTC) + left).isoformat()
    key = "<AccessKeyId>AKROLE</AccessKeyId><SecretAccessKey>x</SecretAccessKey><SessionToken>t</SessionToken>"
    result = f"<Credentials>{key}<Expiration>{until}</Expiration></Credentials>"
    body = f"<AssumeRoleResponse><AssumeRoleResult>{result}</AssumeRoleResult></AssumeRoleResponse>"
    return Answer(body=body.encode())


def refused() -> Answer:
    said = "User: base is not authorized to perform: sts:AssumeRole"
    error = f"<Error><Code>AccessDenied</Code><Message>{said}</Message></Error>"
    return Answer(403, f"<ErrorResponse>{error}<RequestId>0</RequestId></ErrorResponse>".encode())


def asks_sts(request: Request) -> bool:
    return b"Action=AssumeRole" in request.body


def test_expired_or_malformed_keys_are_reported_until_there_are_new_ones(source: Source) -> None:
    source.by_program()
    source.print_key(timedelta(seconds=-1))
    with ScriptedServer(lambda _: Answer()) as server:
        store = open_store("s3://bucket", {"endpoint": server.endpoint, "profile": "role"})
        for text, said in (
            ("", "still expired"),
            (GARBAGE, "JSONDecodeError"),
            ("[]", "put key: "),
            ("{}", "put key: "),
        ):
            if text:
                source.print(text)
            with pytest.raises(StoreError, match=said) as caught:
                store.put("key", [b"x"])
            assert caught.value.retryable
            assert GARBAGE not in str(caught.value)
        assert not server.requests
        source.print_key(timedelta(hours=6))
        store.put("key", [b"x"])
        store.close()


def test_a_source_that_fails_at_the_start_is_reported_for_the_replica(source: Source, tmp_path: Path) -> None:
    source.by_program()
    for program in ("there-is-no-such-program", f"cat {tmp_path / 'printed'}"):
        (tmp_path / "config").write_text(f"[profile role]\nregion = {REGION}\ncredential_process = {program}\n")
        source.print(GARBAGE)
        with pytest.raises(ConfigError, match="s3://bucket: ") as caught:
            open_store("s3://bucket", {"profile": "role"})
        assert GARBAGE not in str(caught.value)


def test_a_refusal_while_credentials_are_renewed_is_none_of_the_process(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 reports that the role's key has expired, and STS refuses a new one."""
    source.by_role()
    asked: list[Request] = []

    def answer(request: Request) -> Answer:
        if not asks_sts(request):
            return error_answer(400, "ExpiredToken")
        asked.append(request)
        return given(timedelta(hours=6)) if len(asked) == 1 else refused()

    with ScriptedServer(answer) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.endpoint)
        store = open_store("s3://bucket", {"endpoint": server.endpoint, "profile": "role"})
        with pytest.raises(StoreError, match="looked up again") as caught:
            store.put("key", [b"x"])
        assert caught.value.retryable
        with pytest.raises(StoreError, match="sts:AssumeRole") as caught:
            store.put("key", [b"x"])
        store.close()
    assert len(asked) > 1


def test_a_role_that_may_not_be_taken_is_no_missing_permission_on_a_bucket(
    source: Source, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source.by_role()
    may = False
    with ScriptedServer(
        lambda request: (given(timedelta(hours=6)) if may else refused()) if asks_sts(request) else Answer()
    ) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.endpoint)
        store = open_store("s3://bucket", {"endpoint": server.endpoint, "profile": "role"})
        with pytest.raises(StoreError) as caught:
            store.put("key", [b"x"])
        said = "put key: cannot get credentials: AssumeRole: User: base is not authorized to perform"
        assert str(caught.value).startswith(said)
        assert "s3:" not in str(caught.value)
        assert caught.value.retryable
        assert not caplog.records
        may = True
        store.put("key", [b"x"])
        store.close()


def test_credentials_that_expired_at_their_source_are_no_failure_of_the_store(source: Source) -> None:
    source.by_program()
    source.print_key(timedelta(seconds=-1))
    with ScriptedServer(lambda _: Answer()) as server:
        store = open_store("s3://bucket", {"endpoint": server.endpoint, "profile": "role"})
        with pytest.raises(StoreError, match=r"put key: cannot get credentials: RuntimeError: .*still expired"):
            store.put("key", [b"x"])
        store.close()
