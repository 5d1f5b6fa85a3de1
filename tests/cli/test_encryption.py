"""Encrypted replicas, as people use them: keys, the daemon, and everything that reads a replica."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import lz4.frame
import pytest

from litelog.encryption.recipients import Recipients
from litelog.errors import ExitCode
from litelog.objects import claim as claims_of
from tests.builders.documents import blocks_of
from tests.builders.encrypted import encrypt_claim

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Command

CANARY = "canary-in-the-coal-mine"
"""In each name."""

SECRET = "attack-at-dawn"
RECORDS = [f"{SECRET} {number}" for number in range(200)]


def configure(tree: Command, encryption: str, **options: str) -> None:
    option = "".join(f"\n          {name}: {value}" for name, value in options.items())
    (tree.folder / "c.yml").write_text(
        f"""
state-dir: state
addr: off
logs:
  - path: {CANARY}-log
    format: lines
    pattern: "{CANARY}-*.txt"
    replicas:
      - url: replica
        snapshot-segments: 1
        encryption: {encryption}
        options: {{{option}}}
"""
    )


def append(tree: Command, name: int, records: list[str]) -> None:
    folder = tree.folder / f"{CANARY}-log"
    folder.mkdir(exist_ok=True)
    with open(folder / f"{CANARY}-{name}.txt", "a") as file:
        file.write("".join(f"{record}\n" for record in records))


def replicate(tree: Command, *options: str):
    return tree("replicate", "--once", "--config", "c.yml", *options)


def claims(tree: Command) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((tree.folder / "replica/epochs").iterdir())]


def key(tree: Command, name: str) -> str:
    return tree("key", "new", "-o", name).out.strip()


@pytest.fixture
def tree(litelog: Command) -> Command:
    """A log of three log segments, replicated for the holder of key.txt."""
    public = key(litelog, "key.txt")
    configure(litelog, f"{{recipients: [{public}]}}")
    for name in range(3):
        append(litelog, name, RECORDS)
        assert replicate(litelog).code == 0
    return litelog


def whole(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def restored(tree: Command, *options: str, output: str = "out") -> bytes:
    return restored_of(tree, "replica", *options, output=output)


def restored_of(tree: Command, place: str, *options: str, output: str = "out") -> bytes:
    done = tree("restore", place, "-o", output, "--pattern", "*", *options)
    assert done.code == 0, done.err
    found = b"".join(path.read_bytes() for path in sorted((tree.folder / output).iterdir()))
    shutil.rmtree(tree.folder / output)
    return found


def log(tree: Command) -> bytes:
    return whole(tree.folder / f"{CANARY}-log")


def test_the_holder_of_the_key_reads_everything_and_the_replica_shows_nothing(tree: Command) -> None:
    identity = ("--identity", "key.txt")
    assert restored(tree, *identity) == log(tree)
    assert tree("cat", "replica", *identity).out.splitlines() == RECORDS * 3
    assert tree("verify", "replica", *identity).code == 0
    assert len(tree("segments", "replica", *identity, "--json").lines) == 3
    assert tree("snapshots", "replica", *identity, "--json").lines
    assert tree("wal", "replica", *identity, "--headers", "--json").code == 0
    assert len(tree("generations", "replica", *identity, "--json").lines) == 1
    names = "".join(str(path.relative_to(tree.folder)) for path in (tree.folder / "replica").rglob("*"))
    assert CANARY not in names
    assert CANARY.encode() not in whole(tree.folder / "replica")
    assert SECRET.encode() not in whole(tree.folder / "replica") + whole(tree.folder / "state")


@pytest.mark.parametrize(
    "verb",
    [
        ("restore", "replica", "-o", "out"),
        ("cat", "replica"),
        ("verify", "replica", "--restore-drill"),
        ("generations", "replica"),
        ("segments", "replica"),
        ("snapshots", "replica"),
        ("copy", "replica", "out"),
    ],
)
def test_without_the_key_each_verb_ends_with_2_and_writes_nothing(tree: Command, verb: tuple[str, ...]) -> None:
    key(tree, "other.txt")
    for options, said in (
        ((), "is encrypted; name the file of your identity"),
        (("--identity", "other.txt"), "other.txt does not read this generation"),
        (("--identity", "none.txt"), "none.txt: cannot be read"),
    ):
        done = tree(*verb, *options)
        assert (done.code, done.out) == (ExitCode.USAGE, ""), options
        assert said in done.err
        assert len(done.err.splitlines()) == 1
        assert [path for path in (tree.folder / "out").rglob("*") if path.is_file()] == []


def test_verify_without_an_identity_says_what_it_could_not_check(tree: Command) -> None:
    append(tree, 3, RECORDS)
    assert replicate(tree).code == 0
    done = tree("verify", "replica")
    assert (done.code, done.err) == (ExitCode.FAILURE, "")
    assert "not checked: records, headers, footers" in done.out
    assert done.out.splitlines()[-1].startswith("names, sizes and framing are sound")
    (report,) = tree("verify", "replica", "--json").lines
    assert (report["harmful_count"], report["anomalies"], report["log_bytes"]) == (0, [], 0)
    assert report["hidden_count"] == sum(report[name] for name in ("snapshots", "sealed_segments", "wal_segments"))
    assert tree("verify", "replica", "--identity", "key.txt").code == ExitCode.DONE


def test_checkpoints_are_encrypted_and_checked_with_the_identity(tree: Command) -> None:
    made = tree("key", "new", "--signing", "-o", "sign.pem")
    (tree.folder / "pub.pem").write_text(made.out)
    config = tree.folder / "c.yml"
    signs = f"        checkpoints: {{sign-key: {tree.folder}/sign.pem}}\n        encryption:"
    config.write_text(config.read_text().replace("        encryption:", signs))
    append(tree, 5, RECORDS)
    assert replicate(tree).code == 0
    (path,) = (tree.folder / "replica" / "checkpoints").rglob("*.json")
    assert path.read_bytes().startswith(b"LLOGENC1")
    assert CANARY.encode() not in whole(tree.folder / "replica")
    trusts = ("--trusted-key", "pub.pem", "--identity", "key.txt")
    done = tree("verify", "replica", *trusts)
    assert (done.code, "the checkpoint 1 of " in done.out) == (ExitCode.DONE, True), done.out + done.err
    assert tree("copy", "replica", "copied", "--identity", "key.txt").code == 0
    assert tree("verify", "copied", *trusts).code == ExitCode.DONE
    assert tree("verify", "replica", "--trusted-key", "pub.pem").code == ExitCode.USAGE


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def unframe(path: Path) -> None:
    path.write_bytes(b"not the magic at all" + path.read_bytes()[20:])


@pytest.mark.parametrize("harm", [cut, unframe, Path.unlink])
def test_verify_without_an_identity_names_what_a_thief_left(tree: Command, harm: Callable[[Path], None]) -> None:
    for _ in range(3):
        append(tree, 9, RECORDS)
        assert replicate(tree).code == 0
    newest = max(path for path in (tree.folder / "replica").rglob("*.wal.lz4"))
    wal = min(newest.parent.glob("*.wal.lz4"))
    harm(wal)
    done = tree("verify", "replica", "--json")
    assert done.code == ExitCode.CORRUPTION
    found = [each["object"] for each in done.lines[0]["anomalies"] if each["harmful"]]
    assert found == [str(wal.relative_to(tree.folder / "replica"))]


def flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


@pytest.mark.parametrize("harm", [cut, unframe, flip])
@pytest.mark.parametrize("kind", ["*.wal.lz4", "*.segment.lz4", "*.snapshot.lz4"])
def test_verify_names_each_harmed_object_and_goes_on(tree: Command, kind: str, harm: Callable[[Path], None]) -> None:
    replica = tree.folder / "replica"
    harmed = max(replica.rglob(kind))
    harm(harmed)
    done = tree("verify", "replica", "--identity", "key.txt", "--json")
    assert (done.code, done.err) == (ExitCode.CORRUPTION, "")
    found = {each["object"] for each in done.lines[0]["anomalies"] if each["harmful"]}
    assert str(harmed.relative_to(replica)) in found


def test_the_daemon_continues_a_generation_without_any_secret_key(tree: Command) -> None:
    (tree.folder / "key.txt").rename(tree.folder / "elsewhere.txt")
    append(tree, 3, RECORDS)
    assert replicate(tree).code == 0
    assert len(claims(tree)) == 1
    assert restored(tree, "--identity", "elsewhere.txt") == log(tree)


def test_other_recipients_begin_a_generation_and_the_former_ones_read_no_more(tree: Command) -> None:
    configure(tree, f"{{recipients: [{key(tree, 'second.txt')}]}}", **{"identity-file": "key.txt"})
    append(tree, 3, RECORDS)
    assert replicate(tree).code == 0
    first, second = claims(tree)
    assert (second["relation"], second["predecessor"]) == ("continues", first["generation"])
    assert "predecessor_file" not in second
    done = tree("restore", "replica", "-o", "out", "--identity", "key.txt")
    assert done.code == ExitCode.USAGE
    both = tree.folder / "both.txt"
    both.write_text("".join((tree.folder / name).read_text() for name in ("key.txt", "second.txt")))
    assert restored(tree, "--identity", "both.txt") == log(tree)


def test_encryption_never_ends_unasked(tree: Command) -> None:
    plain = (tree.folder / "c.yml").read_text().splitlines()
    (tree.folder / "c.yml").write_text("\n".join(line for line in plain if "encryption:" not in line))
    before = whole(tree.folder / "replica")
    append(tree, 3, RECORDS)
    done = replicate(tree)
    assert done.code != 0
    assert "is not encrypted, but epochs/00000001.json before it is" in done.err
    assert whole(tree.folder / "replica") == before
    configure(tree, "none")
    assert replicate(tree).code == 0
    assert "encryption" not in claims(tree)[-1]
    refused = tree("restore", "replica", "-o", "out", "--identity", "key.txt")
    assert (refused.code, "leave out the identity" in refused.err) == (ExitCode.USAGE, True)


def test_encryption_begins_a_generation_in_a_replica_that_was_plain(litelog: Command) -> None:
    configure(litelog, "none")
    append(litelog, 0, RECORDS)
    append(litelog, 1, RECORDS)
    assert replicate(litelog).code == 0
    configure(litelog, f"{{recipients: [{key(litelog, 'key.txt')}]}}")
    append(litelog, 2, ["later"])
    assert replicate(litelog).code == 0
    first, second = claims(litelog)
    assert ("encryption" in first, "encryption" in second) == (False, True)
    assert second["relation"] == "continues"
    assert restored(litelog, "--identity", "key.txt") == log(litelog)


@pytest.mark.parametrize("is_forged", [False, True], ids=["plain", "forged"])
def test_a_claim_that_was_exchanged_never_makes_the_daemon_ship_what_others_read(tree: Command, is_forged) -> None:
    """``is_forged``: an attacker exchanged the claim for one with another key, and the daemon has an identity."""
    path = tree.folder / "replica/epochs/00000001.json"
    claim = claims_of.parse(path.read_bytes())
    assert claim.encryption is not None
    public = claim.encryption.recipients
    forged = replace(claim, encryption=None)
    if is_forged:
        configure(tree, f"{{recipients: [{public[0]}]}}", **{"identity-file": "key.txt"})
        forged = encrypt_claim(claim, Recipients(public))
    body = path.read_bytes()
    path.write_bytes(claims_of.encode(forged))
    before = whole(tree.folder / "replica")
    append(tree, 3, RECORDS)
    done = replicate(tree)
    assert done.code != 0
    assert "does not name the key of this daemon any more" in done.err
    assert whole(tree.folder / "replica") == before
    path.write_bytes(body)
    assert replicate(tree).code == 0
    assert restored(tree, "--identity", "key.txt") == log(tree)


@pytest.mark.slow
def test_another_passphrase_begins_a_generation(litelog: Command) -> None:
    passphrase, identity = litelog.folder / "passphrase", litelog.folder / "identity"
    configure(litelog, f"{{passphrase-file: {passphrase}}}")
    for number, text in enumerate(("one", "one", "two")):
        passphrase.write_text(text)
        append(litelog, number, RECORDS)
        assert replicate(litelog).code == 0
    assert [claim["encryption"]["recipients"] for claim in claims(litelog)] == [["passphrase"]] * 2
    identity.write_text("passphrase one\npassphrase two\n")
    assert restored(litelog, "--identity", "identity") == log(litelog)


def test_another_wrap_command_begins_a_generation_and_one_that_fails_ships_nothing(litelog: Command) -> None:
    def use(program: str) -> None:
        configure(litelog, f"{{wrap-command: [{sys.executable}, -I, -S, -c, '{program}']}}")

    use("import sys; sys.exit(3)")
    append(litelog, 0, RECORDS)
    done = replicate(litelog)
    assert done.code != 0
    assert "ended with exit code 3" in done.err
    assert not [path for path in (litelog.folder / "replica").rglob("*") if path.is_file()]
    for program in ("import sys; sys.stdout.write(sys.stdin.buffer.read().hex())", "print(5)", "print(5)"):
        use(program)
        append(litelog, 0, RECORDS)
        assert replicate(litelog).code == 0
    assert len(claims(litelog)) == 2


def test_a_daemon_that_lost_its_secret_needs_an_identity_to_take_over(tree: Command) -> None:
    shutil.rmtree(tree.folder / "state")
    append(tree, 3, RECORDS)
    refused = replicate(tree, "--takeover")
    assert refused.code == ExitCode.USAGE
    assert "identity-file in the configuration" in refused.err
    public = tree("key", "show", "key.txt").out.strip()
    configure(tree, f"{{recipients: [{public}]}}", **{"identity-file": "key.txt"})
    assert replicate(tree, "--takeover").code == 0
    assert claims(tree)[-1]["relation"] == "continues"
    assert restored(tree, "--identity", "key.txt") == log(tree)


def test_a_copy_is_encrypted_as_the_replica_is(tree: Command) -> None:
    assert tree("copy", "replica", "copy", "--identity", "key.txt").code == 0
    assert SECRET.encode() not in whole(tree.folder / "copy")
    assert tree("verify", "copy", "--identity", "key.txt").code == 0
    assert tree("copy", "replica", "copy", "--identity", "key.txt", "--json").lines[-1]["copied_objects"] == 0
    shutil.rmtree(tree.folder / "replica")
    (tree.folder / "copy").rename(tree.folder / "replica")
    assert restored(tree, "--identity", "key.txt") == log(tree)


@pytest.mark.parametrize(
    ("encryption", "message"),
    [
        ("{recipients: []}", "names no recipient"),
        ("{recipients: [age1nobody]}", "'age1nobody' is not a public key of age"),
        ("{recipients: [/nowhere/keys]}", "/nowhere/keys: cannot be read"),
        ("{recipients: [AGE-SECRET-KEY-1QQQQ]}", "a secret key is given as a recipient"),
        ("{passphrase-file: /nowhere/passphrase}", "/nowhere/passphrase: cannot be read"),
        ("{recipient: [x]}", "encryption.recipient: unknown key; did you mean recipients?"),
        (
            "{passphrase-file: relative}",
            "column 39: logs[0].replicas[0].encryption.passphrase-file: must be",
        ),
        ("{wrap-command: [no-such-program]}", "no-such-program: no such program"),
        ("true", "replicas[0].encryption: Input should be a mapping of keys to values or none (found 'true')"),
    ],
)
def test_a_configuration_that_cannot_encrypt_is_refused(litelog: Command, encryption: str, message: str) -> None:
    configure(litelog, encryption)
    append(litelog, 0, RECORDS)
    for done in (litelog("config", "check", "c.yml"), replicate(litelog)):
        assert done.code == ExitCode.USAGE
        assert message in done.err
    assert not (litelog.folder / "replica").exists()


def test_the_script_in_the_document_reads_an_object_without_litelog(tree: Command) -> None:
    (script,) = (each for each in blocks_of("etc/docs/encryption.md") if each.text.startswith("import base64"))
    assert len(script.text.splitlines()) <= 40
    assert "litelog" not in script.text.replace('f"litelog object', "")
    (tree.folder / "decrypt.py").write_text(script.text)
    sealed = sorted((tree.folder / "replica").rglob("*.segment.lz4"))
    read = b""
    for path in sealed:
        command = [sys.executable, "-I", "decrypt.py", "key.txt", *(tree.folder / "replica/epochs").iterdir(), path]
        done = subprocess.run(command, cwd=tree.folder, capture_output=True, check=True)
        read += lz4.frame.decompress(done.stdout)
    assert sealed
    assert log(tree).startswith(read)
    assert read


def test_an_identity_is_never_overwritten(litelog: Command) -> None:
    public = key(litelog, "key.txt")
    before = (litelog.folder / "key.txt").read_text()
    again = litelog("key", "new", "-o", "key.txt")
    assert again.code == ExitCode.FAILURE
    assert "exists already" in again.err
    assert (litelog.folder / "key.txt").read_text() == before
    assert (litelog.folder / "key.txt").stat().st_mode & 0o077 == 0
    assert litelog("key", "show", "key.txt", "--json").lines == [{"version": 1, "public_keys": [public]}]


def test_logs_states_and_what_a_failed_restore_leaves_show_nothing(tree: Command) -> None:
    """The daemon runs with ``-v``, sees the log change, and cannot write; restores fail. The log's folder is named in
    its configuration, so its name is in the daemon's lines; the names of log segments are not."""
    said = []
    append(tree, 3, RECORDS)
    said.append(tree("-v", "replicate", "--once", "--config", "c.yml"))
    (tree.folder / f"{CANARY}-log" / f"{CANARY}-0.txt").unlink()
    said.append(tree("-v", "replicate", "--once", "--config", "c.yml"))
    for part in ("segment", "wal"):
        for damaged in (tree.folder / "replica").rglob(f"*.{part}.lz4"):
            damaged.write_bytes(damaged.read_bytes()[:-10])
    key(tree, "other.txt")
    for identity in ("key.txt", "other.txt"):
        failed = tree("-v", "restore", "replica", "-o", "out", "--pattern", "*", "--identity", identity)
        assert failed.code in (ExitCode.USAGE, ExitCode.CORRUPTION), failed.err
        assert SECRET not in failed.out + failed.err
        assert [path.name for path in tree.folder.iterdir() if "out" in path.name] == []
    for done in said:
        assert done.code == 0, done.err
        assert SECRET not in done.out + done.err
        assert not re.search(f"{CANARY}-[0-9]", done.out + done.err)
    states = [path for path in (tree.folder / "state").rglob("*") if path.is_file()]
    assert states
    assert all(path.stat().st_mode & 0o077 == 0 for path in states)
    assert SECRET.encode() not in whole(tree.folder / "state")


KILLED_AT_ITS_JOURNAL = """
import os, signal
from litelog.restore.journal import Journal
Journal.sync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_restore_leaves_no_content_in_its_journal(
    tree: Command,
) -> None:
    restore = ("restore", "replica", "-o", "out", "--pattern", "*", "--identity", "key.txt")
    tree.before = KILLED_AT_ITS_JOURNAL
    assert tree(*restore).code == -signal.SIGKILL
    tree.before = ""
    left = tree.folder / ".out.litelog-restoring"
    assert left.stat().st_mode & 0o077 == 0
    journal = (left / ".litelog-restore-journal").read_bytes()
    assert journal
    assert SECRET.encode() not in journal
    assert tree(*restore).code == 0
    assert whole(tree.folder / "out") == log(tree)
    assert not left.exists()
    assert SECRET.encode() not in whole(tree.folder / "state")


def rekey(tree: Command) -> str:
    """Replicate more, for the holder of second.txt. Return the name of a file with both identities."""
    configure(tree, f"{{recipients: [{key(tree, 'second.txt')}]}}")
    append(tree, 3, RECORDS)
    assert replicate(tree).code == 0
    both = tree.folder / "both.txt"
    both.write_text("".join((tree.folder / name).read_text() for name in ("key.txt", "second.txt")))
    return "both.txt"


def test_a_restore_without_the_key_of_an_earlier_generation_is_refused(tree: Command) -> None:
    rekey(tree)
    latest = claims(tree)[-1]["generation"]
    for options in ((), ("--generation", latest)):
        done = tree("restore", "replica", "-o", "out", "--dry-run", "--identity", "second.txt", *options)
        assert (done.code, done.out) == (ExitCode.USAGE, "")
        assert "epochs/00000001.json" in done.err
        assert "second.txt does not read this generation" in done.err


def test_a_restore_with_no_key_for_an_earlier_generation_is_refused(tree: Command) -> None:
    configure(tree, "none")
    append(tree, 3, RECORDS)
    assert replicate(tree).code == 0
    done = tree("restore", "replica", "-o", "out", "--dry-run")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "is encrypted; name the file of your identity" in done.err


def test_a_generation_that_holds_all_is_read_without_those_before_it(litelog: Command) -> None:
    configure(litelog, f"{{recipients: [{key(litelog, 'key.txt')}]}}")
    append(litelog, 3, RECORDS)
    assert replicate(litelog).code == 0
    rekey(litelog)
    name = max(path.name for path in (litelog.folder / "replica/generations").iterdir())
    latest = ("--generation", name[:12], "--identity", "second.txt")
    assert restored(litelog, *latest) == log(litelog)
    assert litelog("cat", "replica", *latest).out.splitlines() == RECORDS * 2
    for verb in ("segments", "snapshots"):
        assert litelog(verb, "replica", *latest, "--json").code == 0


def test_one_file_of_identities_is_named(tree: Command) -> None:
    key(tree, "other.txt")
    done = tree("restore", "replica", "-o", "out", "--identity", "key.txt", "--identity", "other.txt")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert "--identity is given twice: write all identities into one file" in done.err


def test_the_identity_of_a_command_comes_before_the_configured_one(tree: Command) -> None:
    public = tree("key", "show", "key.txt").out.strip()
    key(tree, "other.txt")
    configure(tree, f"{{recipients: [{public}]}}", **{"identity-file": str(tree.folder / "other.txt")})
    for place in ("replica", f"{CANARY}-log"):
        assert tree("restore", place, "-o", "out", "--config", "c.yml").code == ExitCode.USAGE
        assert restored_of(tree, place, "--config", "c.yml", "--identity", "key.txt") == log(tree)


def rename_host(path: Path) -> None:
    """Change a claim as somebody does who has no key, but knows how the CRC-32C is made."""
    path.write_bytes(claims_of.encode(replace(claims_of.parse(path.read_bytes()), host="elsewhere")))


@pytest.mark.parametrize(("harm", "said"), [(flip, "CRC-32C"), (rename_host, "its mac is wrong")])
def test_verify_names_a_claim_that_was_changed_and_goes_on(tree: Command, harm, said: str) -> None:
    both = rekey(tree)
    harm(tree.folder / "replica/epochs/00000001.json")
    later = max((tree.folder / "replica/generations").rglob("*.wal.lz4"))
    cut(later)
    done = tree("verify", "replica", "--identity", both, "--json")
    assert (done.code, done.err) == (ExitCode.CORRUPTION, "")
    found = {each["object"]: each["message"] for each in done.lines[0]["anomalies"] if each["harmful"]}
    assert said in found["epochs/00000001.json"]
    assert str(later.relative_to(tree.folder / "replica")) in found


def test_a_claim_that_says_that_what_is_encrypted_is_not_is_named(tree: Command) -> None:
    path = tree.folder / "replica/epochs/00000001.json"
    path.write_bytes(claims_of.encode(replace(claims_of.parse(path.read_bytes()), encryption=None)))
    for verb in (("restore", "replica", "-o", "out"), ("cat", "replica"), ("segments", "replica")):
        done = tree(*verb, "--identity", "key.txt")
        assert (done.code, done.out) == (ExitCode.CORRUPTION, "")
        assert "is encrypted, though the claim of its generation says that it is not" in done.err
    for identity in ((), ("--identity", "key.txt")):
        done = tree("verify", "replica", "--json", *identity)
        assert (done.code, done.err) == (ExitCode.CORRUPTION, "")
        assert any("is encrypted, though" in each["message"] for each in done.lines[0]["anomalies"])
