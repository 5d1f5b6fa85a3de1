from __future__ import annotations

import pyrage.passphrase
import pytest

from litelog.encryption.passphrases import WORK_FACTOR, decrypt_with_passphrase, encrypt_for_passphrase
from tests.builders.child import runs_in_child

SECRET = bytes(range(32))


@pytest.mark.slow
@runs_in_child
def test_a_file_for_a_passphrase_is_one_of_age_and_takes_the_stated_memory() -> None:
    body = encrypt_for_passphrase(SECRET, "correct horse")
    assert pyrage.passphrase.decrypt(body, "correct horse") == SECRET
    assert decrypt_with_passphrase(body, "correct horse") == SECRET
    assert decrypt_with_passphrase(body, "wrong") is None
    assert body.split(b"\n")[1].split(b" ")[3] == str(WORK_FACTOR).encode() == b"17"


@runs_in_child
def test_a_file_that_asks_for_too_much_memory_or_is_another_one_is_not_read() -> None:
    salt = b"A" * 22
    for factor in (b"21", b"63", b"0", b"017", b"x"):
        body = b"age-encryption.org/v1\n-> scrypt %s %s\n%s\n--- %s\n" % (salt, factor, b"B" * 43, b"C" * 43)
        assert decrypt_with_passphrase(body, "correct horse") is None
    for body in (b"", b"age-encryption.org/v1\n", b"age-encryption.org/v1\n-> X25519 AAAA\n"):
        assert decrypt_with_passphrase(body, "correct horse") is None
