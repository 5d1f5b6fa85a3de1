"""Checkpoints of ``litelog verify``: how one is written, and what a thief with each kind of credentials cannot hide."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ExitCode
from tests.builders.checkpoints import KEY, PRIVATE, PUBLIC

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Command, Outcome

pytest.importorskip("cryptography")

SIGN = ("--sign-key", "key.pem")
TRUST = ("--trusted-key", "pub.pem")


@pytest.fixture
def shipped(litelog: Command) -> Command:
    """A replica of 100 records, its signed checkpoint c1, and a copy of it from then in ``old``."""
    (litelog.folder / "key.pem").write_text(PRIVATE)
    (litelog.folder / "pub.pem").write_text(PUBLIC)
    ship(litelog)
    done = litelog("verify", "backup", "--save-checkpoint", "c1", *SIGN)
    assert (done.code, done.out.splitlines()[-1]) == (ExitCode.DONE, "wrote the checkpoint c1"), done.err
    shutil.copytree(litelog.folder / "backup", litelog.folder / "old")
    return litelog


def ship(litelog: Command) -> None:
    litelog.lines(100)
    assert litelog("replicate", "--once", "log", "backup").code == 0


def verify(litelog: Command, replica: str, checkpoint: str, *more: str) -> Outcome:
    return litelog("verify", replica, "--expect-at-least", checkpoint, *TRUST, *more)


def test_a_replica_that_grew_holds_its_checkpoint_and_gets_the_next_one(shipped: Command) -> None:
    ship(shipped)
    done = verify(shipped, "backup", "c1", "--save-checkpoint", "c2", *SIGN)
    assert done.code == ExitCode.DONE, done.out
    assert done.out.splitlines()[-1].endswith(f"signed by {KEY}: the replica holds the bytes of its 1 log segment")
    first, second = (json.loads((shipped.folder / name).read_text()) for name in ("c1", "c2"))
    assert (first["next"], second["next"], len(second["previous"]), "previous" in first) == (100, 200, 64, False)
    (report,) = verify(shipped, "backup", "c2", "--json").lines
    assert (report["checkpoint"]["signer"], report["checkpoint"]["compared_segments"]) == (KEY, 1)
    assert (report["checkpoint"]["differences"], report["saved_checkpoint"]) == ([], None)


def test_keys_are_exchanged_by_a_signed_statement(shipped: Command) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (shipped.folder / "new.pem").write_bytes(private)
    (shipped.folder / "newpub.pem").write_bytes(public)
    done = verify(shipped, "backup", "c1", "--save-checkpoint", "c2", *SIGN, "--next-key", "newpub.pem")
    assert done.code == ExitCode.DONE, done.err
    assert verify(shipped, "backup", "c2", "--save-checkpoint", "c3", "--sign-key", "new.pem").code == ExitCode.DONE
    assert verify(shipped, "backup", "c3").code == ExitCode.CORRUPTION
    assert verify(shipped, "backup", "c3", "--trusted-key", "c2").code == ExitCode.DONE


def newest_wal(replica: Path) -> Path:
    return max(replica.rglob("*.wal.lz4"))


def test_a_thief_who_deletes_or_brings_back_an_earlier_state_is_noticed(shipped: Command) -> None:
    ship(shipped)
    assert verify(shipped, "backup", "c1", "--save-checkpoint", "c2", *SIGN).code == 0
    assert shipped("verify", "old").code == ExitCode.DONE  # by itself, it is whole
    done = verify(shipped, "old", "c2")
    assert (done.code, done.out.splitlines()[-1].endswith(": 1 difference")) == (ExitCode.CORRUPTION, True)
    assert "all is well" not in done.out
    assert "the objects agree with each other" in done.out
    newest_wal(shipped.folder / "backup").unlink()
    assert shipped("verify", "backup").code == ExitCode.DONE
    (report,) = verify(shipped, "backup", "c2", "--json").lines
    (difference,) = report["checkpoint"]["differences"]
    assert "and held" in difference


def test_a_thief_who_writes_another_replica_is_noticed(shipped: Command) -> None:
    forged = shipped.folder / "forged"
    shipped.lines(100, "mine")
    assert shipped("replicate", "--once", "mine", str(forged)).code == 0
    assert verify(shipped, "forged", "c1").code == ExitCode.CORRUPTION
    checkpoint = json.loads((shipped.folder / "c1").read_text())
    assert shipped("verify", "forged", "--save-checkpoint", "f1").code == 0
    ours = {**json.loads((shipped.folder / "f1").read_text()), "key": checkpoint["key"]}
    (shipped.folder / "f2").write_text(json.dumps({**ours, "signature": checkpoint["signature"]}, indent=1))
    for name, words in (("f1", "is not signed"), ("f2", "f2: ")):
        done = verify(shipped, "forged", name)
        assert (done.code, words in done.err) == (ExitCode.CORRUPTION, True), done.err


def test_a_checkpoint_without_a_trusted_key_has_no_signer(shipped: Command) -> None:
    (report,) = shipped("verify", "backup", "--expect-at-least", "c1", "--json").lines
    assert (report["checkpoint"]["signer"], report["checkpoint"]["compared_segments"]) == (None, 1)


def test_a_position_is_enough(shipped: Command) -> None:
    ship(shipped)
    position = shipped("generations", "backup", "--json").lines[0]["position"]
    short = "/".join(part.lstrip("0") or "0" if number else part for number, part in enumerate(position.split("/")))
    for more in ((), ("--sample", "5%")):
        for text in (position, short):
            assert shipped("verify", "backup", "--expect-at-least", text, *more).code == ExitCode.DONE
    done = shipped("verify", "old", "--expect-at-least", position)
    assert done.code == ExitCode.CORRUPTION
    assert f"before {position}" in done.out


def test_a_replica_that_is_not_sound_gets_no_checkpoint(shipped: Command) -> None:
    wal = newest_wal(shipped.folder / "backup")
    wal.write_bytes(wal.read_bytes()[:-1])
    done = shipped("verify", "backup", "--save-checkpoint", "c2", *SIGN)
    assert (done.code, done.out.splitlines()[-1]) == (ExitCode.CORRUPTION, "the checkpoint c2 was not written")
    assert not (shipped.folder / "c2").exists()
    done = verify(shipped, "backup", "c1")
    assert (done.code, "cannot be read" in done.out) == (ExitCode.CORRUPTION, True)


def test_a_copy_and_a_configured_log_hold_the_checkpoint(shipped: Command) -> None:
    assert shipped("copy", "backup", "copied").code == 0
    assert verify(shipped, "copied", "c1").code == ExitCode.DONE
    (shipped.folder / "litelog.yml").write_text("logs:\n  - path: log\n    replicas:\n      - url: backup\n")
    (report,) = verify(shipped, "log", "c1", "--config", "litelog.yml", "--json").lines
    assert (report["local"], report["checkpoint"]["compared_segments"]) == (None, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (SIGN, 2, "--sign-key needs --save-checkpoint"),
        (("--save-checkpoint", "c2", "--next-key", "pub.pem"), 2, "--next-key needs --sign-key"),
        (("--save-checkpoint", "c1"), 1, "c1: exists already"),
        (("--save-checkpoint", "no/c1"), 2, "no such folder"),
        (("--save-checkpoint", "c2", "--sample", "5%"), 2, "leave out --sample"),
        (("--expect-at-least", "c1", "--sample", "5%"), 2, "leave out --sample"),
        (("--trusted-key", "pub.pem", "--sample", "5%"), 2, "leave out --sample"),
        (("--save-checkpoint", "c2", "--sign-key", "pub.pem"), 2, "pub.pem: is not a private key"),
        (("--expect-at-least", "nothing"), 2, "neither a position nor a checkpoint"),
        (("--expect-at-least", "pub.pem"), 6, "pub.pem: checkpoint: "),
        (("--expect-at-least", "c1", "--trusted-key", "key.pem"), 2, "key.pem: is not a public key"),
        (("--local", "--expect-at-least", "c1"), 2, "backup is a replica"),
    ],
)
def test_mistakes_are_named_before_anything_is_read(
    shipped: Command, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = shipped("verify", "backup", *arguments)
    assert (done.code, done.out, words in done.err) == (code, "", True), done.err
    assert sorted(path.name for path in shipped.folder.glob("c*")) == ["c1"]


def _make_key(litelog: Command) -> None:
    """Make a key in ``sign.pem``, with its public key in ``pub.pem``."""
    made = litelog("key", "new", "--signing", "-o", "sign.pem")
    assert made.code == 0, made.err
    (litelog.folder / "pub.pem").write_text(made.out)
    assert litelog("key", "show", "sign.pem").out == made.out


def test_a_daemon_signs_and_verify_compares_with_its_checkpoints(litelog: Command) -> None:
    _make_key(litelog)
    litelog.lines(50)
    (litelog.folder / "litelog.yml").write_text(
        f"logs:\n  - path: log\n    replicas:\n      - url: {litelog.folder}/backup\n"
        f"        checkpoints:\n          sign-key: {litelog.folder}/sign.pem\n          every: 10m\n"
    )
    assert litelog("config", "check", "--config", "litelog.yml").code == 0
    for _ in range(2):
        litelog.lines(10)
        done = litelog("replicate", "--once", "--config", "litelog.yml")
        assert done.code == 0, done.err
    checkpoints = sorted((litelog.folder / "backup" / "checkpoints").rglob("*.json"))
    assert len(checkpoints) == 2
    unsigned = litelog("verify", "backup").out.splitlines()
    assert "the replica holds 2 checkpoints; verify --trusted-key PEM_FILE shows who signed them" in unsigned
    done = litelog("verify", "backup", "--trusted-key", "pub.pem")
    assert (done.code, "the checkpoint 2 of " in done.out.splitlines()[-1]) == (ExitCode.DONE, True), done.out
    assert "the replica holds 2 checkpoints" in done.out.splitlines(), "the option was given"
    (report,) = litelog("verify", "backup", "--trusted-key", "pub.pem", "--json").lines
    assert (report["checkpoints"], report["checkpoint"]["number"]) == (2, 2)
    known = shutil.copy(checkpoints[-1], litelog.folder / "known")
    assert litelog("copy", "backup", "copied").code == 0
    for replica in ("backup", "copied"):
        done = litelog("verify", replica, "--expect-at-least", str(known), "--trusted-key", "pub.pem")
        assert done.code == ExitCode.DONE, done.out
    old = shutil.copy(checkpoints[0], litelog.folder / "older")
    shutil.copytree(litelog.folder / "backup" / "checkpoints", litelog.folder / "shown" / "checkpoints")
    done = litelog("verify", "shown", "--expect-at-least", str(old), "--trusted-key", "pub.pem")
    assert (done.code, "it continues 1 other;" in done.out.splitlines()[-1]) == (ExitCode.FAILURE, True), (
        done.out + done.err
    )
    done = litelog("verify", "shown", "--trusted-key", "pub.pem")  # a thief deleted all the rest
    assert (done.code, "holds none of the log segments" in done.out) == (ExitCode.CORRUPTION, True), done.out
    assert "all is well" not in done.out
    assert litelog("verify", "shown").code == ExitCode.NOTHING_TO_RESTORE
    done = litelog("verify", "shown", "--expect-at-least", "pub.pem", "--trusted-key", "pub.pem")
    assert done.code == ExitCode.CORRUPTION
    checkpoints[-1].unlink()
    assert litelog("verify", "backup", "--trusted-key", "pub.pem").code == ExitCode.DONE
    done = litelog("verify", "backup", "--expect-at-least", str(known), "--trusted-key", "pub.pem")
    assert (done.code, "lacks the checkpoint 2" in done.out) == (ExitCode.CORRUPTION, True), done.out
    checkpoints[0].unlink()
    done = litelog("verify", "backup", "--trusted-key", "pub.pem")
    assert (done.code, "no checkpoint that a trusted key has signed" in done.out) == (ExitCode.CORRUPTION, True)
    (litelog.folder / "sign.pem").unlink()
    done = litelog("config", "check", "--config", "litelog.yml")
    assert (done.code, "sign.pem" in done.err + done.out) == (ExitCode.USAGE, True), done.err
    litelog.lines(10)
    done = litelog("replicate", "--once", "--config", "litelog.yml")
    assert (done.code, "writing a checkpoint failed" in done.err) == (0, True), done.err
