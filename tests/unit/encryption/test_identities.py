from __future__ import annotations

import sys

import pytest
from pyrage import x25519

from litelog.encryption.identities import find_identities, new_identity, read_identities
from litelog.encryption.keys import GenerationKey
from litelog.encryption.recipients import Recipients, read_recipients
from litelog.errors import ConfigError
from tests.builders.child import runs_in_child

SECRET = bytes(range(32))
XOR = "import sys; sys.stdout.buffer.write(bytes(b ^ 90 for b in sys.stdin.buffer.read()))"
COMMAND = (sys.executable, "-I", "-S", "-c", XOR)
"""Stands for a key service: it wraps and unwraps."""


def write(path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_each_recipient_reads_the_key_and_nobody_else_does(tmp_path) -> None:
    (first, one), (second, two), (third, _) = (new_identity() for _ in range(3))
    keys = write(tmp_path / "keys.txt", f"# of two people\n\n{one}\n")
    recipients = read_recipients([keys, two])
    wrapped = recipients.wrap(SECRET)
    assert recipients.names == tuple(sorted((one, two)))
    assert len(wrapped) == 1
    for secret, reads in ((first, True), (second, True), (third, False)):
        found = read_identities(write(tmp_path / "id.txt", secret)).unwrap(wrapped)
        assert found == (SECRET if reads else None)


@pytest.mark.slow
@runs_in_child
def test_one_identity_file_holds_those_of_every_kind(tmp_path) -> None:
    secret, public = new_identity()
    passphrase = write(tmp_path / "passphrase", " correct horse \nbattery\n")
    recipients = read_recipients([public], passphrase, COMMAND)
    wrapped = recipients.wrap(SECRET)
    assert recipients.names == (public, "passphrase", "command")
    lines = (secret, "passphrase correct horse", f"unwrap-command {sys.executable} -I -S -c '{XOR}'")
    for line in lines:
        assert read_identities(write(tmp_path / "id.txt", line)).unwrap(wrapped) == SECRET
    assert read_identities(write(tmp_path / "id.txt", "passphrase wrong")).unwrap(wrapped) is None
    whole = read_identities(write(tmp_path / "id.txt", "\n".join(("# all", "", *lines))))
    assert [whole.unwrap([each]) for each in wrapped] == [SECRET] * 3
    assert "correct horse" not in repr(whole)


@runs_in_child
def test_each_command_is_tried_until_one_writes_a_key(tmp_path) -> None:
    python = f"unwrap-command {sys.executable} -I -S -c"
    right, fails, short = (f"{python} '{program}'" for program in (XOR, "import sys; sys.exit(4)", "print(1)"))
    (wrapped,) = read_recipients([], None, COMMAND).wrap(SECRET)
    for lines in ((fails, right), (short, right), (right, fails), (short, fails, right)):
        assert read_identities(write(tmp_path / "id.txt", "\n".join(lines))).unwrap([wrapped]) == SECRET
    for lines, said in (((fails, short), "ended with exit code 4"), ((short, fails), "wrote 2 bytes, not the 32")):
        with pytest.raises(ConfigError, match=said):
            read_identities(write(tmp_path / "id.txt", "\n".join(lines))).unwrap([wrapped])


def test_no_secret_is_in_the_description_of_what_holds_it() -> None:
    key = GenerationKey(b"generation-secret")
    recipients = Recipients(passphrase="correct horse", command=("wrap", "--token=horse"))
    shown = repr((key, key.cipher("log", "key"), recipients))
    assert "horse" not in shown
    assert "secret" not in shown


def test_what_a_claim_states_beyond_that_is_skipped(tmp_path) -> None:
    secret, public = new_identity()
    (wrapped,) = Recipients((public,)).wrap(SECRET)
    identities = read_identities(write(tmp_path / "id.txt", secret))
    damaged = f"{wrapped[:60]}AAAA{wrapped[64:]}"
    assert identities.unwrap(["future:AAAA", "age:no base64", "age", damaged, wrapped]) == SECRET
    assert identities.unwrap([damaged]) is None


@pytest.mark.parametrize(
    ("recipients", "message"),
    [
        ([], "names no recipient"),
        (["age1nokey"], "'age1nokey' is not a public key of age"),
        (["AGE-SECRET-KEY-1QQQ"], "a secret key is given as a recipient"),
        (["/nowhere/keys"], "/nowhere/keys: cannot be read"),
    ],
)
def test_recipients_that_cannot_be_used_are_refused(recipients: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        read_recipients(recipients)
    assert "QQQ" not in str(raised.value)


def test_a_file_of_recipients_without_one_or_with_a_secret_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="holds no recipient"):
        read_recipients([write(tmp_path / "empty", "# nobody\n")])
    with pytest.raises(ConfigError, match="a secret key is given as a recipient") as raised:
        read_recipients([write(tmp_path / "secret", new_identity()[0])])
    assert "AGE-SECRET-KEY-1" not in str(raised.value)
    with pytest.raises(ConfigError, match="line 2, is not a public key of age") as raised:
        read_recipients([write(tmp_path / "identity", "# mine\npassphrase correct horse")])
    assert "horse" not in str(raised.value)
    for text in ("\nlater", "  \nlater", ""):
        with pytest.raises(ConfigError, match="its first line is empty"):
            read_recipients([], write(tmp_path / "passphrase", text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no identity"),
        ("AGE-SECRET-KEY-1QQQ", "line 1 is not a secret key of age"),
        ("# x\nage1abc", "line 2 is not an identity: write AGE-SECRET-KEY-1"),
        ("unwrap-command 'open", "line 1: No closing quotation"),
        ("\udce9".encode("utf-8", "surrogateescape"), "is not text"),
    ],
)
def test_an_identity_file_that_cannot_be_used_is_refused(tmp_path, text, message: str) -> None:
    path = tmp_path / "id.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=message) as raised:
        read_identities(str(path))
    assert str(path) in str(raised.value)
    assert "QQQ" not in str(raised.value)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("/nowhere/wrap",), "cannot be started"),
        ((sys.executable, "-c", "import sys; sys.exit('no rights')"), "ended with exit code 1: no rights"),
        ((sys.executable, "-c", ""), "wrote 0 bytes"),
        ((sys.executable, "-c", "print('x' * 20000)"), "wrote 20001 bytes"),
    ],
)
def test_a_command_that_fails_is_named(command: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^wrap-command: .*{message}"):
        Recipients(command=command).wrap(SECRET)


def test_identities_come_from_the_option_then_the_variable_then_the_credential(tmp_path, monkeypatch) -> None:
    paths = [write(tmp_path / name, new_identity()[0]) for name in ("one", "two", "litelog-identity")]
    monkeypatch.delenv("LITELOG_IDENTITY", raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert find_identities({}) is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "none"))
    assert find_identities({}) is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    found = [find_identities({})]
    monkeypatch.setenv("LITELOG_IDENTITY", paths[1])
    found += [find_identities({}), find_identities({"identity-file": paths[0]})]
    assert [each.path for each in found if each is not None] == [paths[2], paths[1], paths[0]]


def test_a_new_identity_belongs_to_its_public_key() -> None:
    secret, public = new_identity()
    assert str(x25519.Identity.from_str(secret).to_public()) == public
