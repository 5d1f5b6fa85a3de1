"""The specification is in the tree: each citation names a heading that exists, and each name in a page exists."""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from litelog.codec.checksum import crc32c
from litelog.codec.lz4_frames import MAX_EXPANSION, MAX_FRAME_BYTES
from litelog.codec.zstd_frames import MAX_WINDOW_BYTES, compress_zstd_frame
from litelog.encryption.chunks import EncryptedBody
from litelog.encryption.keys import GenerationKey
from litelog.formats.capabilities import Capabilities
from litelog.formats.log_format import LogFormat
from litelog.objects import wal_segment
from litelog.objects.claim import Claim
from litelog.objects.frame_table import FrameTable, ShipTimes
from litelog.objects.layout import wal_key
from litelog.objects.position import Generation, Position
from litelog.objects.sealed_segment import SealedFooter
from litelog.objects.snapshot import Snapshot
from litelog.objects.snapshot_entries import write_entries
from litelog.objects.wal_segment import WalHeader
from litelog.stores.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

PAGES_WITHOUT_A_PACKAGE = ("README.md", "replica_clients", "cmd", "etc", "tests", "tests/simulation")
"""Further places that must have a README.md, in addition to the packages of the library."""

_FENCE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.*)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`]*`")
_URL = re.compile(r"\w+://\S+")
_CITATION = re.compile(r"((?:[\w-]+/)*[\w-]+\.md)(?:#([\w-]+))?")
_MODULE = re.compile(r"`((?:[\w-]+/)*\w+\.py)`")


def files(ending: str) -> list[Path]:
    """The files of the tree with that ending, without files that other programs put there."""
    found = []
    for folder, below, names in os.walk(ROOT):
        below[:] = sorted(name for name in below if not name.startswith(".") and name not in ("__pycache__", "dist"))
        found += [Path(folder, name) for name in sorted(names) if name.endswith(ending)]
    return found


def outside_fences(text: str) -> str:
    return _FENCE.sub("", text)


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(map(slug, _HEADING.findall(outside_fences(page.read_text()))))


def broken_links(page: Path, text: str) -> Iterator[str]:
    """The broken links in a page's ``text``."""
    for target in _LINK.findall(_CODE.sub("", outside_fences(text))):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / unquote(path)).resolve() if path else page
        if not place.exists():
            yield f"{target}: no such file"
        elif anchor and (place.suffix != ".md" or anchor not in anchors(place)):
            yield f"{target}: no such heading"


def prose_of(source: str) -> Iterator[str]:
    """The docstrings and comments of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def table(page: str, heading: str) -> set[str]:
    """The names in the first column of the first table below a heading."""
    section = (ROOT / page).read_text().split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    rows = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert rows is not None, heading
    return {name for row in rows.group().splitlines() for name in re.findall(r"`(\w+)[^`]*`", row.split("|")[1])}


def members(protocol: type) -> set[str]:
    return {name for name in {*vars(protocol), *protocol.__annotations__} if not name.startswith("_")}


def broken_citations(source: str) -> Iterator[str]:
    """The pages and headings that a module's docstrings and comments cite, by paths from the root, but do not exist."""
    for text in prose_of(source) if ".md" in source else ():
        for path, anchor in _CITATION.findall(_URL.sub("", text)):
            if not (ROOT / path).is_file():
                yield f"{path}: no such page"
            elif anchor and anchor not in anchors(ROOT / path):
                yield f"{path}#{anchor}: no such heading"


@pytest.mark.slow
def test_docstrings_and_comments_cite_headings_that_exist() -> None:
    broken = [f"{path}: {what}" for path in files(".py") for what in broken_citations(path.read_text())]
    assert broken == []


@pytest.mark.slow
def test_links_between_pages_lead_somewhere() -> None:
    assert [f"{page}: {what}" for page in files(".md") for what in broken_links(page, page.read_text())] == []


def test_every_package_has_a_description() -> None:
    packages = [path.parent for path in (ROOT / "litelog").glob("*/__init__.py")]
    places = [ROOT / "litelog", *packages, *(ROOT / name for name in PAGES_WITHOUT_A_PACKAGE)]
    assert [str(place) for place in places if not (place.is_file() or (place / "README.md").is_file())] == []


@pytest.mark.slow
def test_modules_and_tests_that_a_page_names_are_there() -> None:
    known = {f"/{path.relative_to(ROOT).as_posix()}" for path in files(".py")}
    missing = [
        f"{page}: {name}"
        for page in files(".md")
        for name in _MODULE.findall(page.read_text())
        if not any(path.endswith(f"/{name}") for path in known)
    ]
    assert missing == []


OBJECTS = "litelog/objects/README.md"


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        (OBJECTS, "## Claim", {"version", *Claim.__slots__, "crc"}),
        (OBJECTS, "### Header", {"version", *WalHeader.__slots__}),
        (OBJECTS, "### Footer document", set(SealedFooter.__slots__)),
        (OBJECTS, "### Frame table", set(FrameTable.of([]).to_json())),
        (OBJECTS, "### Marks", set(ShipTimes((0,), (0,)).to_json())),
        (OBJECTS, "## Snapshot", {"version", *Snapshot.__slots__}),
        (OBJECTS, "### Snapshot entries", set(write_entries([]))),
        ("litelog/formats/README.md", "## The contract", members(LogFormat)),
        ("litelog/formats/README.md", "### What a format may offer", members(Capabilities)),
        ("litelog/stores/README.md", "## ObjectStore", members(ObjectStore) - {"url", "enforces_create_only"}),
    ],
)
def test_a_table_names_each_field_that_there_is(page: str, heading: str, names: set[str]) -> None:
    assert table(page, heading) == names


def test_the_object_shown_byte_by_byte_equals_the_encoded_one() -> None:
    data = b'{"id": 1}\n{"id": 2}\n'
    header = WalHeader(
        log="6d2f7a9c41d84b0fb2b7c1a5e09d3f84",
        format="lines",
        generation="00000001c0ffee42",
        owner="0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        index=0,
        offset=0,
        length=len(data),
        file="app-2026-11-23.log",
        first=0,
        next=2,
        records=2,
        lowest=None,
        highest=None,
        crc=crc32c(data),
        crc_total=crc32c(data),
        previous=hashlib.sha256(b"the first snapshot").hexdigest(),
        shipped=1763890000000000,
        check_start=0,
        check_digest=hashlib.sha256(data).hexdigest(),
    )
    body = b"".join(wal_segment.encode(header, data))
    size = int.from_bytes(body[4:8], "little")
    text, frame = body[8 : 8 + size].decode(), body[8 + size :]
    page = (ROOT / "litelog" / "objects" / "README.md").read_text()
    section = page.split("### A header, byte by byte\n", 1)[1].split("\n## ", 1)[0]
    key, shown, listed = re.findall(r"```(?:json)?\n(.*?)\n```", section, re.DOTALL)
    assert f"`{body[:8].hex(' ')}`: a skippable frame of {size} bytes" in section
    assert f"has {len(body)} bytes" in section
    assert key == wal_key(header.position)
    assert shown.replace("\n", "") == text
    assert bytes.fromhex("".join(line[:48] for line in listed.splitlines())) == frame


def test_the_zstd_frame_shown_byte_by_byte_equals_the_encoded_one() -> None:
    page = (ROOT / "litelog" / "objects" / "README.md").read_text()
    section = page.split("\n## zstd frames\n", 1)[1].split("\n## ", 1)[0]
    _, listed = re.findall(r"```\n(.*?)\n```", section, re.DOTALL)
    frame = bytes.fromhex("".join(line[:48] for line in listed.splitlines()))
    assert compress_zstd_frame(b'{"id": 1}\n{"id": 2}\n') == frame
    assert f"more than {MAX_EXPANSION} times its own bytes" in section
    assert f"more than\n{MAX_WINDOW_BYTES >> 20} MiB, a content of more than {MAX_FRAME_BYTES >> 20} MiB" in section


@pytest.mark.parametrize(
    ("source", "broken"),
    [
        ('"""As litelog/shipping/README.md#one-writer says."""', False),
        ("x = 1  # etc/docs/http.md", False),
        ('"""https://example.org/blob/dev/doc/format.md"""', False),
        ('x = "litelog/none/README.md"', False),
        ('"""As litelog/shipping/README.md#no-writer says."""', True),
        ('def f():\n    """REPLICA.md, "Writing" 9."""', True),
        ("x = 1  # litelog/none/README.md", True),
    ],
)
def test_a_citation_of_a_missing_heading_is_found(source: str, broken: bool) -> None:
    assert bool(list(broken_citations(source))) == broken


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[one](shipping/README.md#one-writer)", False),
        ("[here](#add-a-store), [there](https://example.org/none.md)", False),
        ("`[0](none)`\n```\n[0](none)\n```\n", False),
        ("[none](none.md)", True),
        ("[none](#no-such-heading)", True),
        ("[none](shipping/README.md#no-writer)", True),
    ],
)
def test_a_link_that_leads_nowhere_is_found(text: str, broken: bool) -> None:
    assert bool(list(broken_links(ROOT / "litelog" / "README.md", text))) == broken


def test_the_encrypted_object_shown_byte_by_byte_equals_the_one_that_is_made() -> None:
    page = (ROOT / "litelog" / "encryption" / "README.md").read_text()
    section = page.split("### An object, byte by byte\n", 1)[1]
    key, log = re.findall(r"`([^`]+)`", section)[:2]
    shown = re.findall(r"^((?:[0-9a-f]{2} )+) ", re.findall(r"```\n(.*?)```", section, re.DOTALL)[0], re.MULTILINE)
    assert key == wal_key(Position(Generation("00000001c0ffee42"), 0, 0))
    cipher = GenerationKey(bytes(range(32))).cipher(log, key)
    body = EncryptedBody([b"hello"], AESGCM(cipher.secret), bytes(range(0x10, 0x18)))
    assert bytes.fromhex("".join(shown)) == b"".join(body)
