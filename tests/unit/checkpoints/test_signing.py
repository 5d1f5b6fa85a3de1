"""Signatures of checkpoints: keys as openssl writes them, and what is not accepted."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from litelog.checkpoints.signing import SigningKey, read_trusted_key, read_trusted_keys, require_signed
from litelog.errors import ConfigError, CorruptObjectError
from litelog.objects.checkpoint import decode, encode, fold
from litelog.objects.checkpoint_chain import as_stored, find_fault
from tests.builders.checkpoints import KEY, PRIVATE, PUBLIC, VECTOR, specification

pytest.importorskip("cryptography")


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    (tmp_path / "key.pem").write_text(PRIVATE)
    (tmp_path / "pub.pem").write_text(PUBLIC)
    return SigningKey(str(tmp_path / "key.pem"))


def test_a_signature_is_the_same_each_time_and_in_the_specification(key: SigningKey, tmp_path: Path) -> None:
    signed = key.sign(VECTOR)
    assert (key.public, signed.key, read_trusted_key(str(tmp_path / "pub.pem"))) == (KEY, KEY, KEY)
    assert f"`{signed.signature}`" in specification().replace("`\n`", "")
    assert f"`{hashlib.sha256(encode(signed)).hexdigest()}`" in specification()
    require_signed("c", decode("c", encode(signed)), [KEY])


def test_the_specification_has_two_checkpoints_of_a_replica(key: SigningKey) -> None:
    first = encode(key.sign(replace(VECTOR, number=1)))
    assert f"`{hashlib.sha256(first).hexdigest()}`" in specification()
    newest = VECTOR.segments[-1]
    grown = replace(newest, length=6, digest=hashlib.sha256(b"abcdef").hexdigest())
    before = as_stored("c", first)
    position = replace(VECTOR.position, offset=6)
    second = replace(
        replace(VECTOR, number=2, previous=before.digest, earlier=1, history=fold(None, VECTOR.segments[:1])),
        position=position,
        time=VECTOR.time + 3_600_000_000,
        segments=(grown,),
        next=12,
    )
    body = encode(key.sign(second))
    assert f"```json\n{body.decode()}\n```" in specification()
    assert f"`{hashlib.sha256(body).hexdigest()}`" in specification()
    assert find_fault(before, decode("c", body)) is None


def test_every_other_text_and_key_is_refused(key: SigningKey) -> None:
    signed = key.sign(VECTOR)
    other = signed.segments[0]
    for forged in (
        replace(signed, time=signed.time + 1),
        replace(signed, segments=(replace(other, length=1),)),
        replace(signed, segments=()),
        replace(signed, previous="0" * 64),
        replace(signed, signature="0" * 128),
        replace(signed, next=1),
    ):
        with pytest.raises(CorruptObjectError, match="a signature that is not of its key"):
            require_signed("c", forged, [KEY])
    with pytest.raises(CorruptObjectError, match=r"c: is signed with the key d75a.*, which is not trusted"):
        require_signed("c", signed, ["0" * 64])
    with pytest.raises(CorruptObjectError, match="c: is not signed"):
        require_signed("c", VECTOR, [KEY])
    with pytest.raises(CorruptObjectError, match="a signature that is not of its key"):
        require_signed("c", replace(signed, key="0" * 64), ["0" * 64])


def test_what_is_no_ed25519_key_is_named(key: SigningKey, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    curve = ec.generate_private_key(ec.SECP256R1())
    pem = curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "curve.pem").write_bytes(pem)
    (tmp_path / "none.pem").write_text("no key")
    for name, words in (
        ("curve.pem", "is not an Ed25519 key"),
        ("none.pem", "is not a private key as PEM"),
        ("pub.pem", "is not a private key as PEM"),
        ("nothing.pem", "cannot be read as a key: No such file"),
    ):
        with pytest.raises(ConfigError, match=words):
            SigningKey(str(tmp_path / name))
    with pytest.raises(ConfigError, match="is not a public key as PEM"):
        read_trusted_key(str(tmp_path / "key.pem"))
    assert key.public == KEY


def test_a_signed_checkpoint_hands_the_trust_on_to_the_next_key(key: SigningKey, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("pub.pem", "first", "second")]
    Path(paths[1]).write_bytes(encode(key.sign(VECTOR, "1" * 64)))
    assert read_trusted_keys(paths[:2]) == [KEY, "1" * 64]
    with pytest.raises(CorruptObjectError, match="first: is signed with the key d75a"):
        read_trusted_keys(paths[1::-1])
    Path(paths[2]).write_bytes(encode(replace(key.sign(VECTOR, "1" * 64), next_key="2" * 64)))
    with pytest.raises(CorruptObjectError, match="second: has a signature that is not of its key"):
        read_trusted_keys(paths)
    Path(paths[2]).write_bytes(encode(key.sign(VECTOR)))
    with pytest.raises(ConfigError, match="second: is a checkpoint that names no other key"):
        read_trusted_keys(paths)
