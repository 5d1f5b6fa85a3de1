"""The checkpoint and the keys of the specification's vectors (litelog/objects/README.md#checkpoint)."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from litelog.objects.checkpoint import Checkpoint, CheckpointSegment
from litelog.objects.position import Position

VECTOR = Checkpoint(
    log="0123456789abcdef0123456789abcdef",
    format="litelog",
    position=Position.parse("000000010badcafe/0000000000000001/0000000000000003"),
    time=1_795_600_000_000_000,
    segments=(
        CheckpointSegment("00000000000000000000.log", 0, hashlib.sha256(b"").hexdigest()),
        CheckpointSegment("00000000000000000007.log", 3, hashlib.sha256(b"abc").hexdigest()),
    ),
    next=9,
)

PRIVATE = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
"""
PUBLIC = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
-----END PUBLIC KEY-----
"""
"""The keys of the first test of RFC 8032."""

KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
"""The public one."""


def specification() -> str:
    """The text of the specification's section."""
    text = (Path(__file__).parents[2] / "litelog/objects/README.md").read_text()
    found = re.search(r"^## Checkpoint\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def new_keys(folder: Path, name: str) -> str:
    """Write a new pair of keys, ``<name>.pem`` and ``<name>.pub``. Return the public one, in hex."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    (folder / f"{name}.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key()
    (folder / f"{name}.pub").write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return public.public_bytes_raw().hex()
