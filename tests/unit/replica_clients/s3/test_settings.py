"""An S3 replica's URL and options have their documented meaning. Invalid ones are refused, and no secret is shown."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")

from litelog.errors import ConfigError
from replica_clients.s3 import open_store
from replica_clients.s3.settings import read_settings

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "canary+that/nobody=may1see"


def test_a_url_holds_the_location_and_the_options() -> None:
    url = "s3://my.bucket/a%20b/c?region=eu-west-1&endpoint=http://127.0.0.1:9000/&path-style=false&storage_class=standard_ia"
    settings = read_settings(url, {})
    assert (settings.bucket, settings.prefix, settings.region) == ("my.bucket", "a b/c/", "eu-west-1")
    assert (settings.endpoint, settings.path_style) == ("http://127.0.0.1:9000", False)
    assert settings.storage_class == "STANDARD_IA"
    assert settings.url == "s3://my.bucket/a b/c?endpoint=http://127.0.0.1:9000"
    assert read_settings("s3://my.bucket/a%20b?region=x", {}).url == "s3://my.bucket/a b"
    assert read_settings("s3://bucket", {}).prefix == ""


def test_an_option_wins_over_the_url() -> None:
    settings = read_settings("s3://bucket?region=a&profile=p", {"region": "b", "read-timeout": "1m30s"})
    assert (settings.region, settings.profile, settings.read_timeout) == ("b", "p", 90.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regoin": "x"}, "did you mean region"),
        ({"storage_clas": "x"}, "did you mean storage-class"),
        ({"zzz": "x"}, "no option 'zzz'"),
        ({"path-style": "maybe"}, "path-style must be true or false"),
        ({"read-timeout": "soon"}, "read-timeout must be a duration"),
        ({"connect-timeout": "0s"}, "above 0s"),
        ({"connections": "many"}, "connections must be a number"),
        ({"checksum": "crc16"}, "one of crc32c, sha256, md5"),
        ({"sse": "rot13"}, "sse must be one of"),
        ({"sse-kms-key-id": "x"}, "needs sse: aws:kms"),
        ({"storage-class": "glacier"}, "cannot be read"),
        ({"endpoint": "localhost:9000"}, "endpoint must be a URL"),
        ({"endpoint": f"http://me:{CANARY}@host"}, "takes no credentials"),
        ({"ca-bundle": "/not/there.pem"}, "does not exist"),
        ({"access-key-id": "x"}, "go together"),
        ({"session-token": CANARY}, "needs access-key-id"),
        ({"region": ["x"]}, "region must be text"),
        ({"region": "a\nb"}, "cannot be printed"),
        ({"headers": {"Authorization": CANARY}}, "set by litelog itself"),
        ({"headers": {"a b": CANARY}}, "not a header's name"),
        ({"headers": {"x-a": f"{CANARY}\r\nx-b: c"}}, "cannot be printed"),
        ({"headers": 5}, "a mapping"),
    ],
)
def test_an_invalid_option_is_named_in_the_error(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read_settings("s3://bucket", options)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///key", "s3://b", "s3://buck et", "s3://bucket/a//b", "s3://bucket/../x", "s3://bucket#x"]
)
def test_an_invalid_bucket_or_prefix_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        read_settings(url, {})


@pytest.mark.parametrize(
    "url",
    [
        f"s3://key:{CANARY}@bucket/x",
        f"s3://bucket?secret-access-key={CANARY}",
        f"s3://bucket?aws_secret_access_key={CANARY}",
        f"s3://bucket?session_token={CANARY}&region=x",
        f"s3://bucket?X-Amz-Signature={CANARY}",
        f"s3://bucket?headers=x-auth-token:{CANARY}",
        f"s3://bucket?api-key={CANARY}",
        *(
            f"s3://bucket?headers=X-Tenant:blue,{name}:{CANARY}"
            for name in ("X-Api-Key", "x_api_key", "ApiKey", "x-goog-api-key", "X-Auth", "X-Auth-Key", "X-Private-Key")
        ),
        f"s3://bucket?headers=Ocp-Apim-Subscription-Key:{CANARY}",
        f"s3://bucket?headers=x-amz-server-side-encryption-customer-key:{CANARY}",
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match=r"as \$\{VARIABLE\}") as caught:
        read_settings(url, {})
    assert CANARY not in str(caught.value)


def test_a_harmless_parameter_with_key_in_its_name_may_be_in_a_url(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(32))
    assert read_settings("s3://bucket?sse=aws:kms&sse-kms-key-id=alias/logs", {}).sse_kms_key_id == "alias/logs"
    assert read_settings(f"s3://bucket?sse-customer-key-file={tmp_path / 'key'}", {}).sse_customer_key == bytes(32)
    assert read_settings("s3://bucket?headers=X-Tenant:blue,X-Key-Ring:4", {}).headers[1] == ("X-Key-Ring", "4")


def test_secrets_are_in_no_repr() -> None:
    options = {
        "access-key-id": "AKID",
        "secret-access-key": CANARY,
        "session-token": CANARY,
        "headers": {"x-a": CANARY},
    }
    settings = read_settings("s3://bucket", options)
    store = open_store("s3://bucket", {**options, "region": "eu-west-1"})
    assert settings.secret_access_key == CANARY
    assert CANARY not in repr(settings) + repr(store) + repr(vars(store)) + store.url
    store.close()


@pytest.mark.parametrize("content", [bytes(range(32)), base64.b64encode(bytes(range(32))) + b"\n"])
def test_a_customer_key_is_read_from_a_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    settings = read_settings("s3://bucket", {"sse-customer-key-file": str(tmp_path / "key")})
    assert settings.sse_customer_key == bytes(range(32))


def test_a_customer_key_that_is_none_or_would_be_seen_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(32))
    (tmp_path / "short").write_text("short")
    with pytest.raises(ConfigError, match="does not hold 32 bytes"):
        read_settings("s3://bucket", {"sse-customer-key-file": str(tmp_path / "short")})
    with pytest.raises(ConfigError, match="No such file"):
        read_settings("s3://bucket", {"sse-customer-key-file": str(tmp_path / "missing")})
    with pytest.raises(ConfigError, match="https"):
        read_settings("s3://bucket?endpoint=http://store", {"sse-customer-key-file": str(tmp_path / "key")})


def test_a_profile_that_is_not_there_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="no-such-profile"):
        open_store("s3://bucket", {"profile": "no-such-profile"})
