"""Entry points name replica clients and formats. Errors say clearly what cannot be found or loaded."""

from __future__ import annotations

import re
from contextlib import closing
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ConfigError, ExitCode, UnknownFormatError, UnknownSchemeError
from litelog.formats.registry import FORMATS, format_names, open_format
from litelog.installation import install_command
from litelog.objects.position import ClaimName
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import (
    FAMILIES,
    OBJECT_STORES,
    open_client,
    open_store,
    place_below,
    redact,
    scheme_of,
    schemes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from litelog.system.entry_points import EntryPointGroup

    Install = Callable[[str, dict[str, dict[str, str]]], None]

THIRD_PARTY = """
class Journal:
    name = "journal"

class Patterned:
    name = "patterned"
    def __init__(self, pattern): self.pattern = pattern

def open_store(url, options):
    from replica_clients.memory import MemoryStore
    store = MemoryStore(options.get("name", "none"))
    store.url = url
    return store

def open_in_family(url, options):
    from litelog.errors import UnknownSchemeError
    raise UnknownSchemeError(url.partition("://")[0], ["s3"], hint="install s3fs")
"""

_numbers = count()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package's metadata on the path, as pip does."""

    def write(name: str, groups: dict[str, dict[str, str]]) -> None:
        site = tmp_path / f"{name}{next(_numbers)}"  # entry points are looked up once for each path
        folder = site / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in names.items())
            for group, names in groups.items()
        ]
        (folder / "entry_points.txt").write_text("\n".join(lines))
        (site / f"{name}_module.py").write_text(THIRD_PARTY)
        monkeypatch.syspath_prepend(str(site))

    return write


def test_the_schemes_and_formats_that_come_with_litelog_are_there() -> None:
    assert {"file", "memory"} <= set(schemes())
    assert {"litelog", "lines", "raw"} <= set(format_names())
    assert schemes() == sorted(schemes())


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}", "FILE://{}"])
def test_a_path_is_a_file_replica_no_matter_how_it_is_written(tmp_path: Path, form: str) -> None:
    with closing(open_client(form.format(tmp_path / "a replica"))) as client:
        client.write_claim(ClaimName(1), b"claim")
    assert (tmp_path / "a replica" / "epochs" / "00000001.json").read_bytes() == b"claim"


def test_a_relative_path_counts_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    client = open_client("./some:where/else")
    monkeypatch.chdir("/")
    client.write_claim(ClaimName(1), b"claim")
    assert (tmp_path / "some:where" / "else" / "epochs" / "00000001.json").exists()


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("s3:/bucket/x", "s3:"),
        ("S3:bucket/x", "S3:"),
        ("simplecache::s3://bucket/x", "simplecache:"),
        ("fsspec+sftp:host/x", "fsspec+sftp:"),
        ("host:me:secret@x", "host:"),
        ("local:", "local:"),
    ],
)
def test_a_url_whose_slashes_were_forgotten_is_not_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, prefix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(f"write {prefix}// for a URL, or ./{prefix}...")) as caught:
        open_client(url)
    assert "secret" not in str(caught.value)
    assert not (tmp_path / url.partition("/")[0]).exists()


@pytest.mark.parametrize("path", ["./s3:x", "a/s3:x", "c:x", "c:/x", "3s:x", "_s3:x"])
def test_a_path_may_have_a_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (path, f"{tmp_path}/absolute/{path}"):
        open_client(url).write_claim(ClaimName(1), b"claim")
    assert (tmp_path / path / "epochs" / "00000001.json").exists()
    assert (tmp_path / "absolute" / path / "epochs" / "00000001.json").exists()


def test_a_file_url_is_unquoted_and_quoted_again(tmp_path: Path) -> None:
    client = open_client(f"file://{tmp_path}/100%25%20of%20it")
    client.write_claim(ClaimName(1), b"claim")
    assert (tmp_path / "100% of it").is_dir()
    assert client.url == f"file://{tmp_path}/100%25%20of%20it"


@pytest.mark.parametrize(
    "url", ["file://host/a", "file://relative", "file:relative", "file:///a?b", "memory://", "", " "]
)
def test_a_url_that_does_not_fit_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError):
        open_client(url)


def test_a_memory_replica_is_shared_by_name() -> None:
    open_client("memory://shared-by-name").write_claim(ClaimName(1), b"claim")
    assert open_client("memory://shared-by-name").read_claim(ClaimName(1)) == b"claim"
    assert open_client("memory://another-name").claims() == []


def test_options_that_a_backend_does_not_know_are_refused(tmp_path: Path) -> None:
    for url in (str(tmp_path), "memory://options"):
        with pytest.raises(ConfigError, match="colour"):
            open_client(url, {"colour": "red"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "extra", "packages"),
    [
        ("gopher://x", None, ()),
        ("s3x://x", None, ()),
        ("gs://bucket", "fsspec", ("gcsfs",)),
        ("sftp://h/x", "fsspec", ("paramiko", "sshfs")),
        ("hf://x", "fsspec", ("huggingface_hub",)),
    ],
)
def test_an_unknown_scheme_is_reported_with_known_ones_and_what_to_install(
    url: str, extra: str | None, packages: Sequence[str]
) -> None:
    """The error names the extra or, if that is installed, the package that the scheme itself needs."""
    if any(map(find_spec, packages)):
        pytest.skip(f"{' or '.join(packages)} is installed, so the scheme is known")
    with pytest.raises(UnknownSchemeError) as caught:
        open_client(url)
    assert bool(re.search(r"\(known: file, .*\bmemory\b.*\)", str(caught.value))) == (extra is None)
    lacks_extra = extra is not None and not caught.value.hint
    assert (f"run: {install_command(str(extra))}" in str(caught.value)) == lacks_extra
    if caught.value.hint:
        assert re.fullmatch(rf"{url.partition(':')[0]}:// needs ([\w-]+): pip install \1", str(caught.value))
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_family_without_its_driver_is_reported_with_what_to_install(install: Install) -> None:
    install("lacking", {"litelog.object_store_families": {"lacking": "lacking_module:open_in_family"}})
    with pytest.raises(ConfigError) as caught:
        open_client("lacking+s3://bucket/x")
    assert str(caught.value) == "lacking+s3://: lacking lacks a package for it: install s3fs"


@pytest.mark.slow
def test_an_unknown_scheme_shows_no_password() -> None:
    with pytest.raises(UnknownSchemeError) as caught:
        open_client("gopher://me:secret@host/x")
    assert "secret" not in str(caught.value)


def test_another_package_adds_a_store_and_a_format(install: Install) -> None:
    install(
        "theirs",
        {
            "litelog.object_stores": {"theirs": "theirs_module:open_store"},
            "litelog.formats": {"journal": "theirs_module:Journal", "patterned": "theirs_module:Patterned"},
        },
    )
    assert "theirs" in schemes()
    client = open_client("Theirs://place", {"name": "x"})
    assert isinstance(client, ObjectReplicaClient)
    assert client.url == "theirs://place"
    assert open_format("journal").name == "journal"
    assert open_format("patterned", "*.log").pattern == "*.log"  # type: ignore[attr-defined]


def test_a_pattern_is_given_to_those_formats_that_have_one(
    install: Install,
) -> None:
    install("patterns", {"litelog.formats": {"j": "patterns_module:Journal", "p": "patterns_module:Patterned"}})
    with pytest.raises(ConfigError, match="takes no pattern"):
        open_format("j", "*.log")
    with pytest.raises(ConfigError, match="needs a pattern"):
        open_format("p")


@pytest.mark.parametrize("value", ["no_such_module:open_store", "broken_module:missing"])
def test_a_broken_package_fails_only_when_it_is_asked_for(install: Install, value: str, tmp_path: Path) -> None:
    install("broken", {"litelog.object_stores": {"sftp": value}, "litelog.formats": {"broken": value}})
    assert "sftp" in schemes()
    open_client(str(tmp_path))
    with pytest.raises(ConfigError, match=value) as caught:
        open_store("sftp://host/x")
    assert install_command("fsspec") in str(caught.value)
    with pytest.raises(ConfigError, match=value):
        open_format("broken")


def test_no_package_replaces_what_litelog_has_itself(install: Install, tmp_path: Path) -> None:
    install("other", {"litelog.object_stores": {"file": "other_module:open_store"}})
    install("another", {"litelog.formats": {"raw": "another_module:Journal"}})
    open_client(str(tmp_path)).write_claim(ClaimName(1), b"claim")
    assert (tmp_path / "epochs" / "00000001.json").exists()
    assert open_format("raw", "*").name == "raw"


@pytest.mark.parametrize("group", [OBJECT_STORES, FAMILIES, FORMATS])
def test_what_litelog_has_itself_can_be_imported(group: EntryPointGroup) -> None:
    for name in group.built_in:
        if name in ("s3", "fsspec"):
            pytest.importorskip({"s3": "boto3"}.get(name, name))
        entry = group.find(name)
        assert entry is not None
        assert callable(entry.load())


def test_two_packages_that_differ_about_a_scheme_are_named(
    install: Install,
) -> None:
    install("one", {"litelog.object_stores": {"twice": "one_module:open_store"}})
    install("two", {"litelog.object_stores": {"twice": "two_module:open_store"}})
    with pytest.raises(ConfigError, match=r"one_module:open_store, two_module:open_store"):
        open_store("twice://x")


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(UnknownFormatError, match=r"lines, litelog.*, raw"):
        open_format("yaml")


def test_a_place_below_a_url_keeps_its_query_and_a_path_its_question_mark() -> None:
    assert place_below("s3://bucket/copies/?region=eu", "a") == "s3://bucket/copies/a?region=eu"
    assert place_below("/copies", "a/b") == "/copies/a/b"
    assert place_below("/what?", "a") == "/what?/a"
    assert place_below("s3://bucket/copies/?region=eu", "") == "s3://bucket/copies/?region=eu"


def test_schemes_are_distinguished_from_paths() -> None:
    assert [scheme_of(url) for url in ("S3://b", "s3:b", "/a://b", "a/b", "file:/x", "./x://y")] == [
        "s3",
        "file",
        "file",
        "file",
        "file",
        "file",
    ]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("/a/path@home?x=y", "/a/path@home?x=y"),
        ("s3://bucket/logs@home", "s3://bucket/logs@home"),
        ("s3://key:secret@bucket/x", "s3://***@bucket/x"),
        ("s3://token@bucket", "s3://***@bucket"),
        ("sftp://me:sec/ret@host/x", "sftp://***@host/x"),
        ("sftp://me:sec@ret@host:22/x", "sftp://***@host:22/x"),
        ("sftp://host:22/x", "sftp://host:22/x"),
        ("s3://b/x?secret=abc&region=eu#frag", "s3://b/x?secret=***&region=***#***"),
        ("s3://b/x?abc", "s3://b/x?***"),
    ],
)
def test_secrets_in_a_url_are_not_shown(url: str, shown: str) -> None:
    assert redact(url) == shown
